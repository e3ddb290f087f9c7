// Large numbers as people read them.
#ifndef SLUICE_ENGINE_TEXT_THOUSANDS_H_
#define SLUICE_ENGINE_TEXT_THOUSANDS_H_

#include <cstdint>
#include <string>

namespace sluice {

// "3,212,288"
inline std::string WithThousands(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) {
    digits.insert(i - 3, ",");
  }
  return digits;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_TEXT_THOUSANDS_H_
