// Json against the library beneath it: random values are read back by that.
#include "engine/text/json.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "tests/support/random_bytes.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Once;
using testing::RandomInt;
using testing::Rounds;
using Library = nlohmann::ordered_json;

std::string RandomText(std::mt19937& random) {
  const std::vector<std::string> parts = {
      "a", "\"", "\\", "\n", "é", "漢", "\t", std::string(1, '\0')};
  std::string text;
  for (size_t n = Below(random, 6); n > 0; --n) {
    text += parts[Below(random, parts.size())];
  }
  return text;
}

// The same value twice.
std::pair<Json, Library> RandomValue(std::mt19937& random, int depth) {
  switch (Below(random, depth > 0 ? 9 : 7)) {
    case 0:
      return {Json(), Library()};
    case 1: {
      const bool value = Once(random, 2);
      return {value, value};
    }
    case 2: {
      const int64_t value = RandomInt(random);
      return {value, value};
    }
    case 3: {
      const uint64_t value =
          std::numeric_limits<uint64_t>::max() - Below(random, 3);
      return {value, value};
    }
    case 4: {
      const double value = std::normal_distribution(0.0, 1e3)(random) *
                           (Once(random, 2) ? 1 : 0);
      return {value, value};
    }
    case 5: {
      const auto value = static_cast<float>(Below(random, 100)) / 7;
      return {value, value};
    }
    case 6: {
      const std::string text = RandomText(random);
      return {Once(random, 2) ? Json(text) : Json(std::string_view(text)),
              text};
    }
    case 7: {
      std::pair<Json, Library> array = {Json::Array(), Library::array()};
      for (size_t n = Below(random, 4); n > 0; --n) {
        auto [ours, theirs] = RandomValue(random, depth - 1);
        array.first.Add(ours);
        array.second.push_back(theirs);
      }
      return array;
    }
    default: {
      std::pair<Json, Library> object = {Json::Object(), Library::object()};
      for (size_t n = Below(random, 5); n > 0; --n) {
        auto [ours, theirs] = RandomValue(random, depth - 1);
        const std::string name = RandomText(random);  // sometimes there already
        object.first[name] = ours;
        object.second[name] = theirs;
      }
      return object;
    }
  }
}

TEST_CASE("random values are written as the library writes them") {
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(Rounds(2000)); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto [ours, theirs] = RandomValue(random, 4);
    REQUIRE(ours.Text() == theirs.dump());
    REQUIRE(ours.LenientText(2) == theirs.dump(2));
    const Json copy = ours;
    REQUIRE(copy.Text() == ours.Text());
  }
}

TEST_CASE("objects and arrays are made of what is at hand") {
  const std::string name = "n";
  const Json json = {
      {"text", name},
      {"view", std::string_view("v")},
      {"numbers", std::vector<int64_t>{1, -2}},
      {"map", std::map<std::string, bool>{{"b", true}, {"a", false}}},
      {"object", {{"x", 1}, {"nested", {{"y", 2.5}}}}},
      {"array", Json::Array({name, 1u, Json()})},
      {"none", Json::Object()}};
  CHECK(json.Text() ==
        R"({"text":"n","view":"v","numbers":[1,-2],"map":{"a":false,"b":true},)"
        R"("object":{"x":1,"nested":{"y":2.5}},"array":["n",1,null],)"
        R"("none":{}})");
  Json event;
  event["first"] = 1;
  event["second"] = {{"a", 1}};
  event["third"].Add(Json()).Add("in it");
  event["first"] = "again";
  CHECK(event.Text() ==
        R"({"first":"again","second":{"a":1},"third":[["in it"]]})");
}

TEST_CASE("what is no number is null") {
  const double inf = std::numeric_limits<double>::infinity();
  const Json json = {{"inf", inf}, {"nan", inf - inf}};
  CHECK(json.Text() == R"({"inf":null,"nan":null})");
}

TEST_CASE("what is not UTF-8 is an error, or replaced") {
  const std::string bad = "a\xffz";
  CHECK_FALSE(IsUtf8(bad));
  CHECK(IsUtf8("é漢"));
  for (const Json& json :
       {Json(bad), Json{{"x", bad}}, Json{{bad, 1}}, Json::Array({bad})}) {
    CHECK_THROWS_AS(json.Text(), Error);
    CHECK(json.LenientText().find("\ufffd") != std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
