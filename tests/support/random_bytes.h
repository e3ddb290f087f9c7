// Random bytes and numbers.
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_BYTES_H_
#define SLUICE_TESTS_SUPPORT_RANDOM_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace sluice::testing {

// In [0, n).
inline size_t Below(std::mt19937& random, size_t n) {
  return std::uniform_int_distribution<size_t>(0, n - 1)(random);
}

// True once in so many.
inline bool Once(std::mt19937& random, size_t in) {
  return Below(random, in) == 0;
}

inline std::string RandomBytes(std::mt19937& random, size_t n) {
  std::string bytes(n, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

inline std::vector<std::byte> RandomBuffer(std::mt19937& random, size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}
inline std::vector<std::byte> RandomBuffer(uint32_t seed, size_t n) {
  std::mt19937 random(seed);
  return RandomBuffer(random, n);
}

// Of every magnitude.
inline int64_t RandomInt(std::mt19937& random) {
  const uint64_t bits = uint64_t{random()} << 32 | random();
  return static_cast<int64_t>(bits >> Below(random, 64));
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RANDOM_BYTES_H_
