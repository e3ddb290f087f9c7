// Who comes into an elastic job's group on the way, and one that does not come
// to be whole.
#include <doctest/doctest.h>

#include <chrono>
#include <vector>

#include "dist/membership/roster.h"
#include "tests/dist/membership/meeting.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;
using testing::Of;

// As those of a host that has come do, one a moment after another.
TEST_CASE("of several that are started all come in at once") {
  Roster roster(1);
  roster.Started(0);
  roster.Meets(0, Of(-1));
  REQUIRE(roster.TakeGroup());
  // Beyond those that it began with.
  for (const int seat : {4, 5, 6}) roster.Started(seat, {1, "hostB"});
  roster.Meets(5, Of(-1));
  CHECK(!roster.TakeCall());
  roster.Pass(milliseconds(600));
  roster.Meets(4, Of(-1));
  CHECK(!roster.TakeCall());
  SUBCASE("the last comes") {
    roster.Meets(6, Of(-1));
    CHECK(roster.TakeCall() == 0);
    roster.Meets(0, Of(7));
    const auto begun = roster.TakeGroup();
    REQUIRE(begun.has_value());
    CHECK(begun->assembly.seats == std::vector<int>{0, 4, 5, 6});
    CHECK(begun->newcomers == std::vector<int>{4, 5, 6});
    CHECK(begun->done == 7);
  }
  SUBCASE("the last dies") {
    roster.Ended(6, false);
    CHECK(roster.TakeCall() == 0);
  }
  SUBCASE("the last hangs: the first waits for it as long as it would") {
    roster.Pass(milliseconds(399));
    CHECK(!roster.TakeCall());
    roster.Pass(milliseconds(1));
    CHECK(roster.TakeCall() == 0);
    roster.Meets(0, Of(7));
    CHECK(roster.TakeGroup()->assembly.seats == std::vector<int>{0, 4, 5});
    // And whoever comes behind it, no longer.
    roster.Started(7, {1, "hostB"});
    roster.Meets(7, Of(-1));
    roster.Pass(milliseconds(999));
    CHECK(!roster.TakeCall());
    roster.Pass(milliseconds(1));
    CHECK(roster.TakeCall() == 0);
  }
}

TEST_CASE("one that is not as the others does not come in") {
  Roster roster(1);
  for (int seat = 0; seat < 2; ++seat) roster.Started(seat);
  for (int seat = 0; seat < 2; ++seat) roster.Meets(seat, Of(-1));
  REQUIRE(roster.TakeGroup());
  CHECK(roster.CameIn(1));
  for (int seat = 2; seat < 4; ++seat) roster.Started(seat);
  CHECK(!roster.CameIn(2));
  Meeting other = Of(-1);
  other.build = "1/avx512";
  roster.Meets(2, other);
  CHECK(roster.Unneeded() == std::vector<int>{2});
  CHECK(roster.Differs(2) == "it is Sluice 1/avx512, the others are 1/avx2");
  roster.Pass(milliseconds(1000));
  CHECK(!roster.TakeCall());
  roster.Meets(3, Of(-1));
  CHECK(roster.TakeCall() == 0);
  for (int seat = 0; seat < 2; ++seat) roster.Meets(seat, Of(3));
  CHECK(roster.TakeGroup()->assembly.seats == std::vector<int>{0, 1, 3});
  CHECK(roster.Unneeded() == std::vector<int>{2});
}

TEST_CASE("rank 0 of a group that will not be whole is told, once") {
  Roster roster(1);
  for (int seat = 0; seat < 3; ++seat) roster.Started(seat);
  for (int seat = 0; seat < 3; ++seat) roster.Meets(seat, Of(-1));
  CHECK(!roster.TakeApart());
  REQUIRE(roster.TakeGroup());
  CHECK(!roster.TakeApart());
  SUBCASE("one dies") {
    roster.Ended(2, false);
    CHECK(roster.TakeApart() == 0);
    CHECK(!roster.TakeApart());
    for (const int seat : {0, 1}) {
      CHECK(!roster.TakeGroup());
      roster.Meets(seat, Of(-1));
      CHECK(!roster.TakeApart());
    }
    REQUIRE(roster.TakeGroup());
    CHECK(!roster.TakeApart());
  }
  SUBCASE("one gives it up") {
    roster.Meets(1, Of(-1));
    CHECK(roster.TakeApart() == 0);
    CHECK(!roster.TakeApart());
  }
  SUBCASE("the next group is another") {
    roster.Ended(2, false);
    for (const int seat : {0, 1}) roster.Meets(seat, Of(-1));
    REQUIRE(roster.TakeGroup());
    CHECK(!roster.TakeApart());
  }
  SUBCASE("rank 0 is the one that dies: the others find nobody there") {
    roster.Ended(0, false);
    CHECK(!roster.TakeApart());
  }
  SUBCASE("in a whole one its coordinator notices") {
    for (int seat = 0; seat < 3; ++seat) roster.Formed(seat);
    roster.Ended(2, false);
    CHECK(!roster.TakeApart());
  }
  SUBCASE("so it does where rank 0 has come in, and the others will") {
    roster.Formed(0);
    roster.Ended(2, false);
    CHECK(!roster.TakeApart());
  }
}

}  // namespace
}  // namespace sluice::dist
