// Who is of an elastic job's next group: whatever happens, and in whatever
// order it is heard of.
#include "dist/collective/roster.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using std::chrono::milliseconds;

Meeting Of(int64_t done) {
  return {.port = 1000,
          .done = done,
          .patience = milliseconds(1000),
          .silence = milliseconds(300),
          .why = "rank 1 of 3 has ended"};
}

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
      if (first.ok()) CHECK(Encoded(*first).size() <= text.size());
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
       {"", "beat", "meet", "meet 0 1 1 1 ", "meet 65536 1 1 1 ",
        "meet 80 -2 1 1 ", "meet 80 1 -1 1 ", "meet 80 1 1", "meet 80 1x 1 1 ",
        "meet 80 99999999999999999999 1 1 ", " meet 80 1 1 1 "}) {
    CAPTURE(text);
    CHECK(ParseMeeting(text).status().code() == Code::kDataLoss);
  }
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
  roster.Pass(milliseconds(1000));
  CHECK(roster.Silent().empty());  // nobody waits
  roster.Heard(1);
  roster.Meets(0, Of(1));
  CHECK(roster.Silent() == std::vector<int>{2});
  for (int i = 0; i < 100; ++i) {
    roster.Pass(milliseconds(100));
    roster.Heard(1);
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
  roster.Started(1);
  roster.Meets(1, Of(-1));
  roster.Pass(milliseconds(299));
  CHECK(roster.Silent().empty());
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

// What a group must be, by a book of its own.
TEST_CASE("whatever happens in whatever order, groups are of all that live") {
  std::mt19937 random(7);
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  for (int trial = 0; trial < 400; ++trial) {
    CAPTURE(trial);
    const int size = 1 + draw(5), least = 1 + draw(size);
    enum class Is : uint8_t { kDead, kStarts, kMeets, kIn };
    std::vector<Is> is(static_cast<size_t>(size), Is::kStarts);
    std::vector<int64_t> done(is.size(), -1);
    Roster roster(least);
    for (int seat = 0; seat < size; ++seat) roster.Started(seat);
    uint32_t epoch = 0;
    int restarts = draw(4), calls = 0;
    const auto count = [&](Is what) {
      return std::count(is.begin(), is.end(), what);
    };
    const auto look = [&] {
      if (const auto called = roster.TakeCall()) {
        ++calls;
        CHECK(is[*called] == Is::kIn);
        CHECK(count(Is::kMeets) > 0);
      }
      const auto begun = roster.TakeGroup();
      if (!begun) return;
      CHECK(count(Is::kIn) == 0);
      CHECK(begun->assembly.epoch == ++epoch);
      CHECK(begun->assembly.seats.size() >= static_cast<size_t>(least));
      std::set<int> seats(begun->assembly.seats.begin(),
                          begun->assembly.seats.end());
      CHECK(seats.size() == begun->assembly.seats.size());
      int64_t most = -1;
      for (int seat = 0; seat < size; ++seat) {
        CHECK(seats.contains(seat) == (is[seat] == Is::kMeets));
        if (seats.contains(seat)) most = std::max(most, done[seat]);
      }
      CHECK(done[begun->assembly.seats[0]] == most);
      CHECK(begun->done == most);
      for (const int seat : seats) {
        is[seat] = Is::kIn;
        done[seat] = most;  // rank 0's state
      }
    };
    for (int event = 0; event < 60 && !roster.verdict(); ++event) {
      const int seat = draw(size);
      const int what = draw(10);
      if (what == 0 && is[seat] != Is::kDead) {
        is[seat] = Is::kDead;
        roster.Ended(seat, false);
        if (restarts-- > 0) {
          is[seat] = Is::kStarts;
          done[seat] = -1;
          roster.Started(seat);
        }
      } else if (what <= 4 && is[seat] != Is::kDead) {
        if (is[seat] == Is::kIn) done[seat] += draw(2);
        is[seat] = Is::kMeets;
        roster.Meets(seat, Of(done[seat]));
      } else if (what == 5) {
        roster.Pass(milliseconds(draw(400)));
      }
      look();
    }
    // And something is decided, in the end: all that live come to meet.
    if (roster.verdict()) continue;
    for (int seat = 0; seat < size; ++seat) {
      if (is[seat] == Is::kDead || is[seat] == Is::kMeets) continue;
      is[seat] = Is::kMeets;
      roster.Meets(seat, Of(done[seat]));
      if (draw(2) == 0) look();
    }
    look();
    const bool any = count(Is::kIn) > 0 || count(Is::kMeets) > 0;
    CHECK((count(Is::kIn) > 0 || roster.verdict() || !any));
  }
}

}  // namespace
}  // namespace sluice::dist
