// Command lines as CLI11 is to read them.
#include "engine/text/arguments.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

TEST_CASE("flags with an empty value have it, and none behind -- is one") {
  using Words = std::vector<std::string>;
  CHECK(WithEmptyValues({"train", "--a=", "--b=c=", "-d=", "--=", "--", "--e="})
            .size() == 8);
  CHECK(WithEmptyValues({"--a=", "b"}) == Words{"--a", "", "b"});
  CHECK(WithEmptyValues({"--a=b=", "x="}) == Words{"--a=b=", "x="});
  CHECK(WithEmptyValues({"--", "--a="}) == Words{"--", "--a="});
  CHECK(WithEmptyValues({}).empty());
}

TEST_CASE("numbers that would be octal are wrong") {
  for (const char* text : {"010", "08", "+07", "-01", "00"}) {
    CAPTURE(text);
    CHECK(WrongDecimal(text) ==
          std::string("wanted a decimal number, got '") + text + "'");
  }
  for (const char* text : {"", "0", "-0", "10", "0.5", "0x10", "1e-01", "x"}) {
    CAPTURE(text);
    CHECK(WrongDecimal(text).empty());
  }
}

}  // namespace
}  // namespace sluice
