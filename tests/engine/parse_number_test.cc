// A number is all of its text.
#include "engine/parse_number.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace sluice {
namespace {

template <typename T>
void CheckRange() {
  using Limits = std::numeric_limits<T>;
  for (int64_t value = -70000; value <= 70000; ++value) {
    const auto parsed = ParseWhole<T>(std::to_string(value));
    const bool in_range = value >= Limits::min() && value <= Limits::max();
    CAPTURE(value);
    REQUIRE(parsed.has_value() == in_range);
    if (in_range) REQUIRE(*parsed == value);
  }
}

TEST_CASE("integers are read in their type's range") {
  CheckRange<int8_t>();
  CheckRange<uint8_t>();
  CheckRange<int16_t>();
  CheckRange<uint16_t>();
  CHECK(ParseWhole<int64_t>("9223372036854775807") == INT64_MAX);
  CHECK(ParseWhole<int64_t>("-9223372036854775808") == INT64_MIN);
  CHECK(!ParseWhole<int64_t>("9223372036854775808"));
  CHECK(ParseWhole<uint64_t>("18446744073709551615") == UINT64_MAX);
  CHECK(!ParseWhole<uint64_t>("18446744073709551616"));
  CHECK(ParseWhole<int>("007") == 7);
  CHECK(ParseWhole<int>("-0") == 0);
  CHECK(!ParseWhole<unsigned>("-0"));
}

TEST_CASE("integers of other bases have no prefix") {
  CHECK(ParseWhole<int>("fF", 16) == 255);
  CHECK(ParseWhole<int>("755", 8) == 493);
  CHECK(!ParseWhole<int>("0xff", 16));
  CHECK(!ParseWhole<int>("8", 8));
}

TEST_CASE("what is more or less than one number is none") {
  for (const char* text : {"", " ", "+", "-", "+1", " 1", "1 ", "1\n", "--1",
                           "1-", "1,2", "1.", "1.5", "1e2", "0x1", "12abc"}) {
    CAPTURE(std::string(text));
    CHECK(!ParseWhole<int>(text));
  }
  CHECK(!ParseWhole<int>(std::string_view()));
  CHECK(!ParseWhole<int>(std::string_view("1\0", 2)));
  // Only what the view is of.
  CHECK(ParseWhole<int>(std::string_view("1234", 2)) == 12);
}

TEST_CASE("floating-point numbers") {
  CHECK(ParseWhole<double>("-1.5e2") == -150);
  CHECK(ParseWhole<double>("0.1") == 0.1);
  CHECK(ParseWhole<float>("0.1") == 0.1f);
  CHECK(ParseWhole<double>("inf") == INFINITY);
  CHECK(ParseWhole<double>("-INF") == -INFINITY);
  CHECK(std::isnan(ParseWhole<double>("nan").value()));
  CHECK(ParseWhole<double>("1e300") == 1e300);
  for (const char* text : {"", "+1", " 1", "1 ", "1e", "1,5", "0x1p3", "1.5s",
                           "1e999", "1e-999"}) {
    CAPTURE(std::string(text));
    CHECK(!ParseWhole<double>(text));
  }
  CHECK(!ParseWhole<float>("1e300"));
}

}  // namespace
}  // namespace sluice
