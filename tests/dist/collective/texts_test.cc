#include "dist/collective/texts.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace
}  // namespace sluice::dist
