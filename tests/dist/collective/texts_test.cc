#include "dist/collective/texts.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/dist/collective/ranks.h"
#include "tests/support/strange_collective.h"

namespace sluice::dist {
namespace {

// Of two ranks, of which the other says that its text is so long.
Result<std::vector<std::string>> Gathered(int64_t length,
                                          std::string_view text) {
  std::string said(reinterpret_cast<const char*>(&length), sizeof(length));
  said += text;
  sluice::testing::StrangeCollective group(1, 2, said);
  return GatherTexts(group, "names", "ab");
}

TEST_CASE("texts of any length, within bounds") {
  CHECK(Gathered(4, "abcd").ValueOrThrow() ==
        std::vector<std::string>{"abcd", "ab"});
  CHECK(Gathered(0, "").ValueOrThrow() == std::vector<std::string>{"", "ab"});
  CHECK(Gathered(kMostText, "x").ok());
  for (const int64_t bad : {kMostText + 1, INT64_MAX, int64_t{-1}, INT64_MIN}) {
    const Status status = Gathered(bad, "").status();
    CAPTURE(status.ToString());
    CHECK(status.code() == Code::kDataLoss);
    CHECK(status.message().starts_with("names of rank 0: "));
  }
}

TEST_CASE("texts come whole, in pieces of any size") {
  const testing::Watchdog watchdog;
  std::mt19937 random(1);
  for (const int size : {2, 3, 5}) {
    const testing::Groups groups = testing::JoinAll(size, {});
    for (int trial = 0; trial < 20; ++trial) {
      const auto at_once = static_cast<int64_t>(1 + random() % 50);
      CAPTURE(size);
      CAPTURE(at_once);
      std::vector<std::string> texts(static_cast<size_t>(size));
      for (std::string& text : texts) {
        text.resize(random() % 4 == 0 ? 0 : random() % 200);
        for (char& c : text) c = static_cast<char>(random());
      }
      std::vector<std::vector<std::string>> got(texts.size());
      testing::InThreads(size, [&](int rank) {
        const auto i = static_cast<size_t>(rank);
        got[i] = GatherTexts(*groups[i], "texts", texts[i], 200, at_once)
                     .ValueOrThrow();
      });
      for (const auto& each : got) CHECK(each == texts);
    }
  }
}

}  // namespace
}  // namespace sluice::dist
