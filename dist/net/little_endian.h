// Fields as they travel: unsigned integers little-endian, the lowest byte
// first, and texts in places of a fixed size.
#ifndef SLUICE_DIST_NET_LITTLE_ENDIAN_H_
#define SLUICE_DIST_NET_LITTLE_ENDIAN_H_

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace sluice::dist {

// All move `at` along, so that a writer and its reader list the same fields in
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

// A text of `size` bytes, which are zeros before; a longer one is cut.
inline void PutText(const std::string& text, size_t size, std::byte** at) {
  std::memcpy(*at, text.data(), std::min(text.size(), size));
  *at += size;
}
inline std::string TakeText(size_t size, const std::byte** at) {
  std::string text(reinterpret_cast<const char*>(*at), size);
  text.resize(std::min(text.find('\0'), size));
  *at += size;
  return text;
}

}  // namespace sluice::dist

#endif  // SLUICE_DIST_NET_LITTLE_ENDIAN_H_
