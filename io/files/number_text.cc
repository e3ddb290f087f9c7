#include "io/files/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kBlanks = " \t";
constexpr size_t kMostShown = 40;

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool EqualInAnyCase(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) {
                      return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
                    });
}

Status None(std::string_view text, DType dtype) {
  return DataLoss(fmt::format("{} is no {}", Quoted(text), NameOf(dtype)));
}

Status Beyond(std::string_view text, DType dtype) {
  return DataLoss(fmt::format("{} is beyond {}", Quoted(text), NameOf(dtype)));
}

// from_chars takes no plus.
std::string_view WithoutPlus(std::string_view text) {
  const bool plus = text.size() > 1 && text[0] == '+' && text[1] != '-';
  return plus ? text.substr(1) : text;
}

// Whether a number, which is one, is larger than 1: beyond what a type can
// hold, it is too large then, and too small otherwise.
bool IsLarge(std::string_view number) {
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, e);
  int64_t exponent = 0;
  if (e < number.size()) {
    const std::string_view text = WithoutPlus(number.substr(e + 1));
    const auto read =
        std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (read.ec != std::errc()) return text[0] != '-';
  }
  const size_t point = std::min(digits.find('.'), digits.size());
  const size_t first = digits.find_first_of(kDigits.substr(1));
  const auto before_point = static_cast<int64_t>(point) -
                            static_cast<int64_t>(first) +
                            (first > point ? 1 : 0);
  return exponent > -before_point;
}

template <typename T>
Status ParseFloat(std::string_view text, DType dtype, T* out) {
  const std::string_view number = WithoutPlus(text);
  const char* const end = number.data() + number.size();
  T value = 0;
  const auto read = std::from_chars(number.data(), end, value);
  // It also takes nan(anything).
  if (read.ec == std::errc::invalid_argument || read.ptr != end ||
      number.back() == ')') {
    return None(text, dtype);
  }
  const bool finite = IsDigit(number.back()) || number.back() == '.';
  if (finite && (read.ec != std::errc() || std::isinf(value))) {
    if (IsLarge(number)) return Beyond(text, dtype);
    value = std::copysign(T{0}, number[0] == '-' ? T{-1} : T{1});
  }
  *out = value;
  return {};
}

template <typename T>
Status ParseInteger(std::string_view text, DType dtype, T* out) {
  const std::string_view number = WithoutPlus(text);
  const char* const end = number.data() + number.size();
  int64_t value = 0;
  const auto read = std::from_chars(number.data(), end, value);
  if (read.ec == std::errc::invalid_argument || read.ptr != end) {
    return None(text, dtype);
  }
  if (read.ec != std::errc() || !std::in_range<T>(value)) {
    return Beyond(text, dtype);
  }
  *out = static_cast<T>(value);
  return {};
}

Status ParseBool(std::string_view text, bool* out) {
  *out = text == "1" || EqualInAnyCase(text, "true");
  if (*out || text == "0" || EqualInAnyCase(text, "false")) return {};
  return None(text, DType::kBool);
}

}  // namespace

std::string_view TrimBlanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string Quoted(std::string_view text) {
  const bool all = text.size() <= kMostShown;
  std::string shown(text.substr(0, kMostShown));
  for (char& c : shown) {
    if ((c >= '\0' && c < ' ') || c == '\x7f') c = '?';
  }
  return fmt::format("'{}{}'", shown, all ? "" : "...");
}

Status ParseNumber(std::string_view text, DType dtype, void* out) {
  text = TrimBlanks(text);
  return DispatchAmong<float, double, int8_t, uint8_t, int32_t, int64_t, bool>(
      dtype, [&]<typename T>(TypeTag<T>) {
        T* const to = static_cast<T*>(out);
        if constexpr (std::is_same_v<T, bool>) {
          return ParseBool(text, to);
        } else if constexpr (std::is_floating_point_v<T>) {
          return ParseFloat(text, dtype, to);
        } else {
          return ParseInteger(text, dtype, to);
        }
      });
}

}  // namespace sluice
