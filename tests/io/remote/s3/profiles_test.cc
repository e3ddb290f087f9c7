// Profile files: each rule by itself and damaged ones. tests/crosscheck
// compares random files with Python's configparser.
#include "io/remote/s3/profiles.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

#include "tests/support/random_bytes.h"

namespace sluice::remote {
namespace {

using testing::Below;

Sections Parsed(std::string_view text) {
  return ParseIni(text, "f").ValueOrThrow();
}

TEST_CASE("sections hold names and values") {
  CHECK(Parsed("").empty());
  CHECK(Parsed("\n# a\n ; b\n").empty());
  CHECK(Parsed("[a]") == Sections{{"a", {}}});
  CHECK(Parsed("[a b]\nX = 1 \ny:2\nz==3:4\n[c]\nx=") ==
        Sections{{"a b", {{"x", "1"}, {"y", "2"}, {"z", "=3:4"}}},
                 {"c", {{"x", ""}}}});
  CHECK(Parsed("[a]\r\nx = 1\r\n\r\n") == Sections{{"a", {{"x", "1"}}}});
  CHECK(Parsed("[a]\nx = b # c ; d\n#y = 1") ==
        Sections{{"a", {{"x", "b # c ; d"}}}});
  CHECK(Parsed("[a[b]] x\ny=1") == Sections{{"a[b]", {{"y", "1"}}}});
  CHECK(Parsed("  [a]\n  x = 1\n  y = 2") ==
        Sections{{"a", {{"x", "1"}, {"y", "2"}}}});
}

TEST_CASE("deeper lines go on with a value") {
  CHECK(Parsed("[a]\nx = 1\n  2\n\ty = 3\nz = 4") ==
        Sections{{"a", {{"x", "1\n2\ny = 3"}, {"z", "4"}}}});
  CHECK(Parsed("[a]\ns3 =\n  b = c\n\n  # d\n  e = f\n\n[g]") ==
        Sections{{"a", {{"s3", "\nb = c\n\ne = f"}}}, {"g", {}}});
  CHECK(Parsed("[a]\n  x = 1\n y = 2") ==
        Sections{{"a", {{"x", "1"}, {"y", "2"}}}});
  CHECK(Parsed("[a]\nx = 1\n [b]") == Sections{{"a", {{"x", "1\n[b]"}}}});
}

TEST_CASE("a line that cannot be read is named, not shown") {
  const auto message = [](std::string_view text) {
    const Status status = ParseIni(text, "d\x1b/f").status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("SECRET") == std::string::npos);
    return status.message();
  };
  const std::string place = "'d\\x1b/f', line ";
  CHECK(message("SECRET = 1") == place + "1: no [section] is before it");
  CHECK(message("[a]\n\nSECRET\n") ==
        place + "3: it is neither [section] nor name = value");
  CHECK(message("[a]\n= SECRET") ==
        place + "2: it is neither [section] nor name = value");
  CHECK(message("[a]\n[]\n") ==
        place + "2: it is neither [section] nor name = value");
  CHECK(message("[a]\nx=1\nX=SECRET") ==
        place + "3: the section has this name before");
  CHECK(message("[a]\n[b]\n[a]") == place + "3: the section was there before");
}

TEST_CASE("the config file names profiles by kind") {
  const Sections sections = Parsed(
      "[profile a]\nx=1\n[profile 'b c']\n[profile  \"d\"]\n[profilee]\n"
      "[profile]\n[profile f g]\n[default]\n[services a]\ny=1\n[profile '']");
  CHECK(SectionsOf(sections, "profile") ==
        Sections{{"", {}}, {"a", {{"x", "1"}}}, {"b c", {}}, {"d", {}}});
  CHECK(SectionsOf(sections, "services") == Sections{{"a", {{"y", "1"}}}});
}

TEST_CASE("a value may be options of its own") {
  CHECK(NestedOptions("\na = b\n\nc=d=e\nf") ==
        Options{{"a", "b"}, {"c", "d=e"}});
  CHECK(NestedOptions("").empty());
  CHECK(NestedOptions("a = b").empty());
}

TEST_CASE("any bytes make sections or an error, which shows nothing of them") {
  std::mt19937 random(3);
  const std::string parts[] = {"[", "]",  "[a]\n", "SECRET",
                               "=", ":",  "#",     "\n",
                               " ", "\r", "\t",    "[profile x]"};
  int errors = 0, profiles = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t n = Below(random, 20); n > 0; --n) {
      text += parts[Below(random, std::size(parts))];
    }
    CAPTURE(text);
    const auto sections = ParseIni(text, "f");
    if (!sections.ok()) {
      const std::string message = sections.status().message();
      REQUIRE(message.starts_with("'f', line "));
      REQUIRE(message.find("SECRET") == std::string::npos);
      ++errors;
      continue;
    }
    for (const auto& [name, options] : SectionsOf(*sections, "profile")) {
      REQUIRE(text.find("[profile " + name) != std::string::npos);
      ++profiles;
    }
    for (const auto& [name, options] : *sections) {
      for (const auto& [option, value] : options) {
        REQUIRE_FALSE(option.empty());
        for (const auto& [inner, of_inner] : NestedOptions(value)) {
          REQUIRE(value.find('\n' + inner) != std::string::npos);
        }
      }
    }
  }
  CHECK(errors > 0);
  CHECK(profiles > 0);
}

}  // namespace
}  // namespace sluice::remote
