// Patterns of names beside a matcher that tries everything.
#include "models/optim/name_pattern.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;

bool Slow(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return Slow(name, pattern.substr(1)) ||
           (!name.empty() && Slow(name.substr(1), pattern));
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         Slow(name.substr(1), pattern.substr(1));
}

TEST_CASE("patterns match what trying everything matches") {
  std::mt19937 random(5);
  const auto text = [&](std::string_view characters, size_t longest) {
    std::string made(random() % (longest + 1), ' ');
    for (char& c : made) c = characters[random() % characters.size()];
    return made;
  };
  int matches = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::string name = text("ab/", 8), pattern = text("ab/*?*", 8);
    CAPTURE(name);
    CAPTURE(pattern);
    const bool wanted = Slow(name, pattern);
    matches += wanted;
    REQUIRE(MatchesPattern(name, pattern) == wanted);
  }
  CHECK(matches > 10'000);
  CHECK(matches < 90'000);
}

TEST_CASE("a star stands for slashes, other characters for themselves") {
  CHECK(MatchesPattern("layer1/0/conv1/weights", "layer1/*"));
  CHECK(MatchesPattern("layer1/0/conv1/weights", "*weights"));
  CHECK(MatchesPattern("layer1/0/conv1/weights", "layer?/0/*"));
  CHECK_FALSE(MatchesPattern("layer10/0/conv1/weights", "layer?/*"));
  CHECK_FALSE(MatchesPattern("fc/weights", "fc"));
  CHECK_FALSE(MatchesPattern("fc2/weights", "fc/*"));
  CHECK_FALSE(MatchesPattern("fcx", "fc."));
  CHECK(MatchesPattern("a[b]\\", "a[b]\\"));
}

TEST_CASE("many stars take no time") {
  const std::string name(100'000, 'a');
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  CHECK(MatchesPattern(name, pattern));
  CHECK_FALSE(MatchesPattern(name, pattern + "b"));
}

TEST_CASE("names are selected in their order, each once") {
  using Strings = std::vector<std::string>;
  const Strings names = {"conv/weights", "conv/bias", "fc/weights", "fc/bias"};
  const auto select = [&](std::string_view patterns) {
    return SelectNames(patterns, names).ValueOrThrow();
  };
  CHECK(select("") == Strings{});
  CHECK(select("fc/*") == Strings{"fc/weights", "fc/bias"});
  CHECK(select("*/bias,conv/*,fc/bias") ==
        Strings{"conv/weights", "conv/bias", "fc/bias"});
  CHECK(select("*") == names);
}

TEST_CASE("patterns that cannot be meant") {
  std::vector<std::string> names = {"conv/weights", "fc/bias"};
  for (const char* patterns : {",", ",fc/*", "fc/*,", "fc/*,,conv/*"}) {
    const Status status = SelectNames(patterns, names).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(Contains(status.message(), "has an empty pattern"));
  }
  CHECK(Contains(SelectNames("fc/*,,x", names).status().message(),
                 "'fc/*,,x' has an empty pattern at character 6"));
  CHECK(SelectNames("fc/*,fc2/*", names).status().message() ==
        "'fc2/*' matches none of the 2 names 'conv/weights', 'fc/bias'");
  names.clear();
  for (int i = 0; i < 100; ++i) names.push_back(std::to_string(i));
  CHECK(Contains(SelectNames("fc/*", names).status().message(),
                 "none of the 100 names '0', '1', '2', '3', ..., '96', '97', "
                 "'98', '99'"));
  CHECK(Contains(SelectNames("fc", {}).status().message(),
                 "none of the 0 names"));
}

}  // namespace
}  // namespace sluice
