// Texts that are one number, read alike in every locale.
#ifndef SLUICE_ENGINE_PARSE_NUMBER_H_
#define SLUICE_ENGINE_PARSE_NUMBER_H_

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace sluice {

// The number that the whole text is, in T's range; nullopt where it is none:
// empty, beyond T, with a blank or a plus, with something behind it. Unsigned
// types take no minus. Integers are decimal, or of the base given, 2 to 36, and
// have no prefix. Floating-point numbers may be inf and nan, in any case.
template <typename T, std::same_as<int>... Base>
std::optional<T> ParseWhole(std::string_view text, Base... base) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_PARSE_NUMBER_H_
