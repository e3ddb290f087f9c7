// Who is of an elastic job's next group: whatever happens, and in whatever
// order it is heard of.
#include "dist/membership/roster.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/dist/membership/meeting.h"
#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using std::chrono::milliseconds;
using testing::Of;

TEST_CASE("what travels comes back, and nothing else is taken") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    Meeting meeting = Of(static_cast<int64_t>(random()) - 1);
    meeting.port = static_cast<int>(1 + random() % 65535);
    meeting.why = trial % 3 == 0 ? "" : "a b  c";
    const Meeting same = ParseMeeting(Encoded(meeting)).ValueOrThrow();
    CHECK(same.port == meeting.port);
    CHECK(same.done == meeting.done);
    CHECK(same.patience == meeting.patience);
    CHECK(same.silence == meeting.silence);
    CHECK(same.build == meeting.build);
    CHECK(same.why == meeting.why);
    std::set<int> seats;
    const size_t count = 1 + random() % 9;
    while (seats.size() < count) seats.insert(static_cast<int>(random() % 50));
    Assembly group = {static_cast<uint32_t>(1 + random() % 1000),
                      meeting.port,
                      {seats.begin(), seats.end()},
                      {},
                      trial % 2 == 0 ? "::1" : "hostA"};
    for (size_t i = 0; i < count; ++i) {
      group.hosts.push_back(static_cast<int>(random() % 3));
    }
    std::shuffle(group.seats.begin(), group.seats.end(), random);
    const Assembly again = ParseAssembly(Encoded(group)).ValueOrThrow();
    CHECK(again.epoch == group.epoch);
    CHECK(again.port == group.port);
    CHECK(again.seats == group.seats);
    CHECK(again.hosts == group.hosts);
    CHECK(again.address == group.address);

    // Of a text that was changed what is taken is what it says.
    for (std::string text : {Encoded(meeting), Encoded(group)}) {
      for (int i = 0; i < 3; ++i) {
        text[random() % text.size()] = " ,0123456789-+xgomet"[random() % 20];
      }
      const auto first = ParseMeeting(text);
      // With the space before a `why` of nothing.
      if (first.ok()) CHECK(Encoded(*first).size() <= text.size() + 1);
      if (first.ok()) CHECK(first->port > 0);
      const auto second = ParseAssembly(text);
      if (second.ok()) {
        const std::set<int> all(second->seats.begin(), second->seats.end());
        CHECK(all.size() == second->seats.size());
        CHECK(*all.begin() >= 0);
        CHECK(second->epoch > 0);
      }
    }
  }
  for (const char* text :
       {"", "beat", "meet", "meet 0 1 1 1 b ", "meet 65536 1 1 1 b ",
        "meet 80 -2 1 1 b ", "meet 80 1 -1 1 b ", "meet 80 1 1",
        "meet 80 1x 1 1 b ", "meet 80 99999999999999999999 1 1 b ",
        " meet 80 1 1 1 b ", "meet 80 1 1 1", "meet 80 1 1 1 ",
        "meet 80 1 1 1  b"}) {
    CAPTURE(text);
    CHECK(ParseMeeting(text).status().code() == Code::kDataLoss);
  }
  CHECK(ParseMeeting("meet 80 1 1 1 b").ok());
  CHECK(!ParseMeeting("meet 80 1 1 1 " + std::string(65, 'b')).ok());
  for (const char* text : {"",
                           "go",
                           "go 1 80",
                           "go 1 80 ",
                           "go 0 80 1",
                           "go 1 0 1",
                           "go 1 80 1,",
                           "go 1 80 ,1",
                           "go 1 80 1,1",
                           "go 1 80 -1",
                           "go 1 80 4096",
                           "go 4294967296 80 1",
                           "gone 1 80 1",
                           "go 1 80  1",
                           "go 1 80 a",
                           "go 1 80 a ",
                           "go 0 80 a 1",
                           "go 1 0 a 1",
                           "go 1 80 a 1,",
                           "go 1 80 a ,1",
                           "go 1 80 a 1,1",
                           "go 1 80 a -1",
                           "go 1 80 a 4096",
                           "go 1 80 a 1 2",
                           "go 1 80 a 1/",
                           "go 1 80 a 1/0",
                           "go 1 80 a 1/4096",
                           "go 1 80 a 1/1/1",
                           "go 1 80 a 1/1,1/2"}) {
    CAPTURE(text);
    CHECK(ParseAssembly(text).status().code() == Code::kDataLoss);
  }
}

TEST_CASE("all begin together, and who is furthest leads") {
  Roster roster(2);
  for (int seat = 0; seat < 4; ++seat) roster.Started(seat);
  for (const int seat : {2, 0, 3}) roster.Meets(seat, Of(-1));
  CHECK(!roster.TakeGroup());
  roster.Meets(1, Of(-1));
  auto begun = roster.TakeGroup();
  REQUIRE(begun.has_value());
  CHECK(begun->assembly.seats == std::vector<int>{0, 1, 2, 3});
  CHECK(begun->assembly.epoch == 1);
  CHECK(begun->done == -1);
  CHECK(!roster.TakeGroup());

  // 0 dies; of the others 2 has done a step more.
  roster.Meets(1, Of(7));
  roster.Meets(2, Of(8));
  CHECK(!roster.TakeGroup());
  roster.Ended(0, false);
  CHECK(!roster.TakeGroup());
  roster.Meets(3, Of(7));
  begun = roster.TakeGroup();
  REQUIRE(begun.has_value());
  CHECK(begun->assembly.seats == std::vector<int>{2, 1, 3});
  CHECK(begun->assembly.epoch == 2);
  CHECK(begun->done == 8);
  CHECK(begun->newcomers.empty());

  // Another comes for 0: the leader is called, once, and stays.
  roster.Started(0);
  CHECK(!roster.TakeCall());
  roster.Meets(0, Of(-1));
  CHECK(roster.TakeCall() == 2);
  CHECK(!roster.TakeCall());
  for (const int seat : {3, 1, 2}) {
    CHECK(!roster.TakeGroup());
    roster.Meets(seat, Of(9));
  }
  begun = roster.TakeGroup();
  REQUIRE(begun.has_value());
  CHECK(begun->assembly.seats == std::vector<int>{2, 0, 1, 3});
  CHECK(begun->newcomers == std::vector<int>{0});
}

TEST_CASE("those of a host are neighbours, rank 0's first") {
  Roster roster(1);
  for (int seat = 0; seat < 6; ++seat) {
    roster.Started(seat, {seat % 3, "host" + std::to_string(seat % 3)});
  }
  for (int seat = 0; seat < 6; ++seat) roster.Meets(seat, Of(-1));
  auto begun = roster.TakeGroup();
  REQUIRE(begun.has_value());
  CHECK(begun->assembly.seats == std::vector<int>{0, 3, 1, 4, 2, 5});
  CHECK(begun->assembly.hosts == std::vector<int>{0, 0, 1, 1, 2, 2});
  CHECK(begun->assembly.address == "host0");
  // A host goes, and one of its ranks comes again on another.
  for (const int seat : {0, 3}) roster.Ended(seat, false);
  roster.Started(3, {2, "host2"});
  for (const int seat : {1, 2, 3, 4, 5}) {
    roster.Meets(seat, Of(seat == 2 ? 8 : seat == 3 ? -1 : 7));
  }
  begun = roster.TakeGroup();
  REQUIRE(begun.has_value());
  CHECK(begun->assembly.seats == std::vector<int>{2, 3, 5, 1, 4});
  CHECK(begun->assembly.hosts == std::vector<int>{2, 2, 2, 1, 1});
  CHECK(begun->assembly.address == "host2");
}

TEST_CASE("too few wait for others as long as some may come") {
  Roster roster(2);
  for (int seat = 0; seat < 2; ++seat) roster.Started(seat);
  for (int seat = 0; seat < 2; ++seat) roster.Meets(seat, Of(-1));
  REQUIRE(roster.TakeGroup());
  roster.Ended(1, false);
  roster.Started(1);
  roster.Meets(0, Of(3));
  CHECK(!roster.TakeGroup());
  CHECK(!roster.verdict());
  roster.Pass(milliseconds(999));
  CHECK(!roster.TakeGroup());
  CHECK(!roster.verdict());
  SUBCASE("one comes") {
    roster.Meets(1, Of(-1));
    CHECK(roster.TakeGroup()->assembly.seats == std::vector<int>{0, 1});
  }
  SUBCASE("none comes in time") {
    roster.Pass(milliseconds(1));
    CHECK(!roster.TakeGroup());
    REQUIRE(roster.verdict().has_value());
    CHECK(*roster.verdict() ==
          "1 of at least 2 processes is left, and no other has come in time");
  }
  SUBCASE("the last that could come dies") {
    roster.Ended(1, false);
    CHECK(!roster.TakeGroup());
    REQUIRE(roster.verdict().has_value());
  }
  SUBCASE("all are told to end: it need not be enough") {
    roster.WindUp();
    CHECK(roster.TakeGroup()->assembly.seats == std::vector<int>{0});
    CHECK(roster.Unneeded() == std::vector<int>{1});
  }
}

TEST_CASE("one that never came is not waited for when all others are dead") {
  Roster roster(1);
  for (int seat = 0; seat < 2; ++seat) roster.Started(seat);
  roster.Meets(0, Of(-1));
  roster.Pass(milliseconds(1000));
  REQUIRE(roster.TakeGroup());
  roster.Formed(0);
  roster.Pass(milliseconds(5000));
  CHECK(roster.Silent().empty());
  roster.Ended(0, false);
  roster.Pass(milliseconds(999));
  CHECK(!roster.verdict());
  CHECK(roster.Silent().empty());
  roster.Pass(milliseconds(1));
  CHECK(roster.verdict().has_value());
  CHECK(roster.Silent() == std::vector<int>{1});
}

TEST_CASE("none that ever comes is waited for as long as the launcher says") {
  Roster roster(1, milliseconds(500));
  for (int seat = 0; seat < 3; ++seat) roster.Started(seat);
  roster.Pass(milliseconds(499));
  CHECK(roster.Missing() == std::vector<int>{0, 1, 2});
  CHECK(roster.Silent().empty());
  SUBCASE("one dies, and nobody comes") {
    roster.Ended(1, false);
    roster.Pass(milliseconds(1));
    REQUIRE(roster.verdict().has_value());
    CHECK(*roster.verdict() ==
          "ranks 0, 2 have not come in 0.5 s (--join-timeout)");
    CHECK(roster.Silent() == std::vector<int>{0, 2});
  }
  SUBCASE("who takes its place has as long") {
    roster.Ended(1, false);
    roster.Started(1);
    roster.Pass(milliseconds(499));
    CHECK(!roster.verdict());
  }
  SUBCASE("one comes, and says itself how long") {
    roster.Meets(1, Of(-1));
    for (const int time : {200, 299, 299, 201}) {
      roster.Heard(1);
      roster.Pass(milliseconds(time));
      CHECK(!roster.TakeGroup());
    }
    roster.Pass(milliseconds(1));
    CHECK(roster.TakeGroup()->assembly.seats == std::vector<int>{1});
  }
}

TEST_CASE(
    "one that stops before its group is whole is noticed by nobody else") {
  Roster roster(1);
  for (int seat = 0; seat < 2; ++seat) roster.Started(seat);
  for (int seat = 0; seat < 2; ++seat) roster.Meets(seat, Of(-1));
  REQUIRE(roster.TakeGroup());
  roster.Pass(milliseconds(299));
  CHECK(roster.Silent().empty());
  roster.Formed(0);
  roster.Pass(milliseconds(1));
  CHECK(roster.Silent() == std::vector<int>{1});
  // All that are of a whole group: who stopped them lets them go on.
  roster.Heard(1);
  roster.Formed(1);
  roster.Pass(milliseconds(10000));
  CHECK(roster.Silent().empty());
}

TEST_CASE(
    "those that meet and stop are not told why it is over: they are "
    "killed") {
  Roster roster(2);
  for (int seat = 0; seat < 2; ++seat) roster.Started(seat);
  roster.Meets(0, Of(-1));
  roster.Pass(milliseconds(1000));
  CHECK(!roster.TakeGroup());
  REQUIRE(roster.verdict().has_value());
  CHECK(roster.Silent() == std::vector<int>{0});
  roster.Ended(0, false);
  CHECK(roster.Silent() == std::vector<int>{1});
}

TEST_CASE("who comes when the others are done is not needed") {
  Roster roster(1);
  for (int seat = 0; seat < 2; ++seat) roster.Started(seat);
  for (int seat = 0; seat < 2; ++seat) roster.Meets(seat, Of(-1));
  REQUIRE(roster.TakeGroup());
  roster.Ended(1, false);
  roster.Started(1);
  CHECK(roster.Unneeded().empty());
  roster.Ended(0, true);
  CHECK(roster.Unneeded() == std::vector<int>{1});
  roster.Meets(1, Of(-1));
  CHECK(!roster.TakeGroup());
  CHECK(roster.Unneeded() == std::vector<int>{1});
}

TEST_CASE("one that stands still is given up, one that is busy is waited for") {
  Roster roster(1);
  for (int seat = 0; seat < 3; ++seat) roster.Started(seat);
  for (int seat = 0; seat < 3; ++seat) roster.Meets(seat, Of(-1));
  REQUIRE(roster.TakeGroup());
  for (int seat = 0; seat < 3; ++seat) roster.Formed(seat);
  roster.Pass(milliseconds(1000));
  CHECK(roster.Silent().empty());  // nobody waits
  roster.Heard(1);
  roster.Meets(0, Of(1));
  CHECK(roster.Silent() == std::vector<int>{2});
  for (int i = 0; i < 100; ++i) {
    roster.Pass(milliseconds(100));
    for (const int seat : {0, 1}) roster.Heard(seat);
    CHECK(roster.Silent() == std::vector<int>{2});
    CHECK(!roster.TakeGroup());
  }
  roster.Ended(2, false);
  CHECK(roster.Silent().empty());
  roster.Meets(1, Of(1));
  CHECK(roster.TakeGroup()->assembly.seats == std::vector<int>{0, 1});
}

// As where all others of its group have died.
TEST_CASE("one that stands still keeps nobody from coming in") {
  Roster roster(1);
  roster.Started(0);
  roster.Meets(0, Of(-1));
  REQUIRE(roster.TakeGroup());
  roster.Formed(0);
  roster.Started(1);
  roster.Meets(1, Of(-1));
  roster.Pass(milliseconds(299));
  CHECK(roster.Silent().empty());
  roster.Heard(1);
  roster.Pass(milliseconds(1));
  CHECK(roster.Silent() == std::vector<int>{0});
  roster.Ended(0, false);
  CHECK(roster.TakeGroup()->assembly.seats == std::vector<int>{1});
}

TEST_CASE(
    "a group that comes apart again and again without a loss is given up") {
  Roster roster(1);
  for (int seat = 0; seat < 2; ++seat) roster.Started(seat);
  int groups = 0;
  while (!roster.verdict() && groups < 100) {
    for (int seat = 0; seat < 2; ++seat) roster.Meets(seat, Of(5));
    if (roster.TakeGroup()) ++groups;
  }
  CHECK(groups == 6);
  CHECK(Contains(*roster.verdict(), "rank 1 of 3 has ended"));
}

}  // namespace
}  // namespace sluice::dist
