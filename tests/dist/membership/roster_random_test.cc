// Who is of an elastic job's next group, and that there is one or an end:
// random comings, ends and stops, each by a book of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "dist/membership/roster.h"
#include "tests/dist/membership/meeting.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;
using testing::Of;

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

// Processes that die, stop for good or end, whenever; time is a tenth of a
// second a round. What a group's own members notice of each other is told.
TEST_CASE("whoever stops or dies, and when, a job goes on or ends") {
  std::mt19937 random(13);
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  enum class Is : uint8_t { kGone, kStarts, kMeets, kJoins, kIn };
  int ended = 0, went_on = 0, paused = 0, came_apart = 0;
  for (int trial = 0; trial < 600; ++trial) {
    CAPTURE(trial);
    const int size = 1 + draw(4), least = 1 + draw(size);
    Roster roster(least, milliseconds(1000));
    std::vector<Is> is(static_cast<size_t>(size), Is::kStarts);
    std::vector<bool> stopped(is.size(), false);
    // When each comes, and when it is struck.
    std::vector<int> comes(is.size()), struck(is.size());
    const auto start = [&](int seat, int now) {
      is[seat] = Is::kStarts;
      stopped[seat] = false;
      comes[seat] = now + draw(8);
      struck[seat] = draw(3) == 0 ? 1 << 20 : now + draw(40);
      roster.Started(seat);
    };
    for (int seat = 0; seat < size; ++seat) start(seat, 0);
    int restarts = draw(3), broken_since = -1;
    size_t group_size = 0;
    bool failed = false, called = false;
    const auto end = [&](int seat, int now) {
      is[seat] = Is::kGone;
      roster.Ended(seat, false);
      if (!roster.verdict() && restarts-- > 0) start(seat, now);
    };
    const auto of_group = [&](int seat) {
      return is[seat] == Is::kJoins || is[seat] == Is::kIn;
    };
    int now = 0;
    for (; now < 400; ++now) {
      for (int seat = 0; seat < size; ++seat) {
        if (is[seat] == Is::kGone) continue;
        if (now >= struck[seat] && !stopped[seat]) {
          struck[seat] = 1 << 20;
          if (draw(2) == 0) {
            end(seat, now);
            continue;
          }
          stopped[seat] = true;
        }
        if (stopped[seat]) continue;
        if (is[seat] != Is::kStarts) roster.Heard(seat);
        if (is[seat] == Is::kStarts && now >= comes[seat]) {
          is[seat] = Is::kMeets;
          roster.Meets(seat, Of(-1));
        }
        // Told that there is no more.
        if (is[seat] == Is::kMeets && roster.verdict()) failed = true;
      }
      if (failed) break;  // the launcher ends all others
      roster.Pass(milliseconds(100));
      if (const auto begun = roster.TakeGroup()) {
        for (const int seat : begun->assembly.seats) is[seat] = Is::kJoins;
        group_size = begun->assembly.seats.size();
        broken_since = -1;
        called = false;
      }
      bool whole = true, lacks = false;
      size_t there = 0;
      for (int seat = 0; seat < size; ++seat) {
        if (!of_group(seat)) continue;
        ++there;
        if (stopped[seat]) lacks = true;
        if (is[seat] == Is::kJoins) whole = false;
      }
      lacks = lacks || there < group_size;
      if (roster.TakeCall()) called = true;
      // Of a group that is not whole, and will not be; a whole one notices it
      // itself.
      const auto apart = roster.TakeApart();
      if (apart) {
        CHECK(is[*apart] == Is::kJoins);
        ++came_apart;
      }
      for (int seat = 0; seat < size; ++seat) {
        if (!of_group(seat) || stopped[seat]) continue;
        if (!lacks && !whole && is[seat] == Is::kJoins) {
          is[seat] = Is::kIn;
          roster.Formed(seat);
        }
      }
      // After the peer timeout those that run come apart; where others wait,
      // at once.
      if (lacks && broken_since < 0) broken_since = now;
      if (called || (apart && !stopped[*apart]) ||
          (lacks && now >= broken_since + 4)) {
        for (int seat = 0; seat < size; ++seat) {
          if (!of_group(seat) || stopped[seat]) continue;
          is[seat] = Is::kMeets;
          roster.Meets(seat, Of(0));
        }
      }
      for (const int seat : roster.Silent()) {
        CHECK((stopped[seat] || roster.verdict().has_value()));
        end(seat, now);
      }
    }
    const auto count = [&](Is what, bool still) {
      int64_t n = 0;
      for (int seat = 0; seat < size; ++seat) {
        n += is[seat] == what && stopped[seat] == still;
      }
      return n;
    };
    const auto running = count(Is::kIn, false), held = count(Is::kIn, true);
    const auto waiting = count(Is::kMeets, false) + count(Is::kMeets, true) +
                         count(Is::kJoins, false) + count(Is::kJoins, true);
    const auto gone = std::count(is.begin(), is.end(), Is::kGone);
    CAPTURE(least);
    if (failed || gone == size) {
      ++ended;
    } else if (running == 0 && held > 0) {
      ++paused;  // a whole group, all of whose members were stopped
    } else {
      ++went_on;
      CHECK(running >= least);
      CHECK(held == 0);
      CHECK(waiting == 0);
    }
  }
  CHECK(ended > 50);
  CHECK(went_on > 50);
  CHECK(paused > 0);
  CHECK(came_apart > 0);
}

}  // namespace
}  // namespace sluice::dist
