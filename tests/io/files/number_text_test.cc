// Numbers in text, against the C library's conversions.
#include "io/files/number_text.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::Once;

std::string Digits(std::mt19937& random, size_t most) {
  std::string digits;
  for (size_t n = Below(random, most + 1); n > 0; --n) {
    digits += static_cast<char>('0' + Below(random, 10));
  }
  return digits;
}

// Decimal, of any magnitude, often near a float's ends or between two floats.
std::string RandomDecimal(std::mt19937& random) {
  if (Once(random, 3)) {
    // Halfway between two floats, and a digit more or less.
    const uint32_t bits = static_cast<uint32_t>(random()) & 0x7fffffffU;
    float a = 0;
    std::memcpy(&a, &bits, sizeof(a));
    if (!std::isfinite(a)) a = 1;
    const double middle =
        (static_cast<double>(a) + static_cast<double>(std::nextafter(
                                      a, std::numeric_limits<float>::max()))) /
        2;
    std::string text = fmt::format("{:.120e}", middle);
    if (Once(random, 2)) text.insert(text.find('e'), "1");
    return text;
  }
  std::string text = Once(random, 3) ? "-" : Once(random, 3) ? "+" : "";
  const std::string whole = Digits(random, 25);
  text += whole;
  if (whole.empty() || Once(random, 2)) {
    text += "." + Digits(random, 25) + (whole.empty() ? "7" : "");
  }
  if (Once(random, 2)) {
    text += fmt::format("{}{}{}", Once(random, 2) ? "e" : "E",
                        Once(random, 2)   ? "-"
                        : Once(random, 2) ? "+"
                                          : "",
                        Below(random, Once(random, 9) ? 5000 : 60));
  }
  return text;
}

template <typename T>
void CheckFloat(const std::string& text, DType dtype, T wanted, int* beyond) {
  CAPTURE(text);
  T got = 0;
  const Status status = ParseNumber(text, dtype, &got);
  if (std::isinf(wanted)) {
    ++*beyond;
    CHECK(status.code() == Code::kDataLoss);
    CHECK(Contains(status.message(), "is beyond float"));
    return;
  }
  REQUIRE(status.ok());
  CHECK(got == wanted);
  CHECK(std::signbit(got) == std::signbit(wanted));
}

TEST_CASE("decimals are the nearest float, or beyond all") {
  std::mt19937 random(1);
  int beyond = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = RandomDecimal(random);
    CheckFloat(text, DType::kFloat32, std::strtof(text.c_str(), nullptr),
               &beyond);
    CheckFloat(text, DType::kFloat64, std::strtod(text.c_str(), nullptr),
               &beyond);
  }
  CHECK(beyond > 100);
  for (const char* text : {"1e-46",
                           "-1e-400",
                           "0.000000000000000000000000000000000000000000000001",
                           "1e-99999999999999999999",
                           "1e99999999999999999999",
                           "1e39",
                           "-1e39",
                           "3.4028236e38",
                           "3.4028235e38",
                           "1e-45",
                           "7e-46",
                           "4.9e-324",
                           "2e-324",
                           "1.8e308",
                           "0e99999999999999999999",
                           "-0",
                           "0.00e5",
                           "5.",
                           ".5",
                           "100000000000000000000000000000000000000000",
                           "1e+5"}) {
    CheckFloat(text, DType::kFloat32, std::strtof(text, nullptr), &beyond);
    CheckFloat(text, DType::kFloat64, std::strtod(text, nullptr), &beyond);
  }
}

TEST_CASE("infinities and what is no number are written in words") {
  const auto read = [](std::string_view text) {
    double value = 0;
    ThrowIfError(ParseNumber(text, DType::kFloat64, &value));
    return value;
  };
  for (const char* text : {"inf", "Infinity", "+INF", " inf\t"}) {
    CHECK(read(text) == INFINITY);
  }
  CHECK(read("-inf") == -INFINITY);
  CHECK(std::isnan(read("nan")));
  CHECK(std::isnan(read("NaN")));
}

TEST_CASE("integers are in their type's range") {
  std::mt19937 random(2);
  const auto check = [](const std::string& text, DType dtype, int64_t least,
                        int64_t most) {
    CAPTURE(text);
    errno = 0;
    const int64_t value = std::strtoll(text.c_str(), nullptr, 10);
    Tensor got(dtype, {});
    const Status status = ParseNumber(text, dtype, got.raw());
    if (errno == ERANGE || value < least || value > most) {
      CHECK(Contains(
          status.message(),
          fmt::format("'{}' is beyond {}", TrimBlanks(text), NameOf(dtype))));
      return;
    }
    REQUIRE(status.ok());
    CHECK(got.IntAt(0) == value);
  };
  for (int i = 0; i < 20'000; ++i) {
    std::string digits = Digits(random, Once(random, 2) ? 3 : 24);
    if (digits.empty()) {
      digits = Once(random, 2) ? "9223372036854775808" : "128";
    }
    const char* const sign = Once(random, 2) ? "-" : Once(random, 3) ? "+" : "";
    const std::string text = std::string(Below(random, 2), ' ') + sign +
                             digits + std::string(Below(random, 2), ' ');
    check(text, DType::kInt8, INT8_MIN, INT8_MAX);
    check(text, DType::kUInt8, 0, UINT8_MAX);
    check(text, DType::kInt32, INT32_MIN, INT32_MAX);
    check(text, DType::kInt64, INT64_MIN, INT64_MAX);
  }
}

// A blank of Unicode's.
constexpr char kSpaceAndOne[] = {'\xc2', '\xa0', '1', '\0'};

TEST_CASE("what is none") {
  const std::vector<DType> all = {
      DType::kFloat32, DType::kFloat64, DType::kInt8, DType::kUInt8,
      DType::kInt32,   DType::kInt64,   DType::kBool};
  for (const char* text :
       {"",      " ",     "x",          "1x",    "x1",    "1 2", "--1",
        "+-1",   "-+1",   "+",          "-",     ".",     "e5",  "1e",
        "1e+",   "0x10",  "1,5",        "1_000", "1.2.3", "1f",  "nan(1)",
        "nan()", "infin", kSpaceAndOne, "1\n",   "tru",   "yes", "\xd9\xa1"}) {
    for (const DType dtype : all) {
      CAPTURE(text);
      CAPTURE(NameOf(dtype));
      Tensor got(dtype, {});
      const Status status = ParseNumber(text, dtype, got.raw());
      CHECK(status.code() == Code::kDataLoss);
      CHECK(Contains(status.message(), fmt::format("is no {}", NameOf(dtype))));
    }
  }
  for (const char* text : {"1.5", "1e3", "1.", "inf", "true"}) {
    int64_t value = 0;
    CHECK(!ParseNumber(text, DType::kInt64, &value).ok());
  }
  bool flag = false;
  for (const char* text : {"1", "true", "TRUE", " True "}) {
    flag = false;
    CHECK((ParseNumber(text, DType::kBool, &flag).ok() && flag));
  }
  for (const char* text : {"0", "false", "False"}) {
    flag = true;
    CHECK((ParseNumber(text, DType::kBool, &flag).ok() && !flag));
  }
  CHECK(!ParseNumber("2", DType::kBool, &flag).ok());
  CHECK(ParseNumber(std::string(50, 'a') + "\n", DType::kInt32, &flag)
            .message() == "'" + std::string(40, 'a') + "...' is no int32");
  CHECK(Quoted("a\nb\t\x7f") ==
        "'a?b?"
        "?'");
}

}  // namespace
}  // namespace sluice
