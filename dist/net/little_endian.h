// Unsigned integers as they travel: little-endian, the lowest byte first.
#ifndef SLUICE_DIST_NET_LITTLE_ENDIAN_H_
#define SLUICE_DIST_NET_LITTLE_ENDIAN_H_

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace sluice::dist {

// Both move `at` along, so that a writer and its reader list the same fields in
// the same order.
template <std::unsigned_integral T>
void Put(T value, std::byte** at) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    *(*at)++ = static_cast<std::byte>(uint64_t{value} >> (8 * i));
  }
}
template <std::unsigned_integral T>
T Take(const std::byte** at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<uint64_t>(*(*at)++) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace sluice::dist

#endif  // SLUICE_DIST_NET_LITTLE_ENDIAN_H_
