// Letters, digits and spaces of ASCII, whatever the locale.
#ifndef SLUICE_IO_REMOTE_HTTP_ASCII_H_
#define SLUICE_IO_REMOTE_HTTP_ASCII_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::remote {

inline constexpr std::string_view kSpaces = " \t\n\v\f\r";

inline bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
inline bool IsLowerLetter(char c) {
  return c >= 'a' && c <= 'z';
}
inline bool IsAlphanumeric(char c) {
  return IsDigit(c) || IsLowerLetter(static_cast<char>(c | 0x20));
}

inline std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  return lower;
}

// The text without the spaces at its ends.
inline std::string_view Stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_ASCII_H_
