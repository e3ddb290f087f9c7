// Numbers of JSON are read exactly or not at all.
#include "engine/text/json_object.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;

JsonObject Of(const std::string& value) {
  return JsonObject::Parse("{\"x\": " + value + "}").ValueOrThrow();
}

TEST_CASE("integers of JSON at the edges of their types") {
  CHECK(*Of("9223372036854775807").Int("x") == INT64_MAX);
  CHECK(*Of("-9223372036854775808").Int("x") == INT64_MIN);
  CHECK(*Of("18446744073709551615").Unsigned("x") == UINT64_MAX);
  CHECK(*Of("9223372036854775808").Unsigned("x") == uint64_t{1} << 63);
  CHECK(*Of("0").Int("x") == 0);
  CHECK(*Of("0").Unsigned("x") == 0);
  for (const char* bad :
       {"9223372036854775808", "18446744073709551615", "18446744073709551616",
        "-9223372036854775809", "1.0", "1.5", "1e3", "-0.0", "1e300", "true",
        "null", "\"1\"", "[1]", "{}"}) {
    CAPTURE(bad);
    CHECK_FALSE(Of(bad).Int("x").ok());
  }
  for (const char* bad : {"-1", "18446744073709551616", "5.17107e19", "1.0",
                          "1e300", "true", "null", "\"1\"", "[1]", "{}"}) {
    CAPTURE(bad);
    CHECK_FALSE(Of(bad).Unsigned("x").ok());
  }
}

TEST_CASE("what is nested deeply is neither copied nor followed") {
  constexpr int kDeep = 1'000'000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  const JsonObject object =
      JsonObject::Parse("{\"o\": {\"a\": " + deep + "}}").ValueOrThrow();
  const JsonObject inner = *object.Object("o");
  CHECK(inner.Has("a"));
  CHECK_FALSE(inner.Strings("a").ok());
  CHECK_FALSE(inner.Object("a").ok());
}

TEST_CASE("fields that are missing or of another type are named") {
  const JsonObject object =
      JsonObject::Parse(
          R"({"b": true, "s": "t", "l": ["u", "v"], "m": ["u", 1],
              "o": {"i": 3}})")
          .ValueOrThrow();
  CHECK(*object.Bool("b"));
  CHECK(*object.String("s") == "t");
  CHECK(*object.Strings("l") == std::vector<std::string>{"u", "v"});
  CHECK(*object.Object("o").ValueOrThrow().Int("i") == 3);
  CHECK(object.names() == std::vector<std::string>{"b", "l", "m", "o", "s"});
  CHECK(object.Has("b"));
  CHECK_FALSE(object.Has("c"));
  CHECK(Contains(object.Bool("c").status().message(), "there is no \"c\""));
  CHECK(Contains(object.Bool("s").status().message(),
                 "\"s\" is string, not true or false"));
  CHECK(Contains(Of("1.5").Int("x").status().message(),
                 "\"x\" is 1.5, not an int64"));
  CHECK_FALSE(object.String("b").ok());
  CHECK_FALSE(object.Strings("m").ok());
  CHECK_FALSE(object.Strings("s").ok());
  CHECK_FALSE(object.Object("l").ok());
  for (const char* bad : {"", "[]", "3", "{", "{\"a\":}", "{}{}", "\xff"}) {
    CAPTURE(bad);
    CHECK(JsonObject::Parse(bad).status().code() == Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sluice
