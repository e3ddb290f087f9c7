// Who is there, of random workers that come, go and come again: against books
// that are kept by time alone.
#include "dist/servers/attendance.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using std::chrono::milliseconds;

// All that one worker did, as (time, whether it is there), in order.
using Diary = std::vector<std::pair<int, bool>>;

// Whether it is away at `now` for so long that nobody waits any more.
bool StaysAway(const Diary& diary, int now, int back) {
  if (diary.empty() || diary.back().second) return false;
  return now - diary.back().first >= back;
}

TEST_CASE("a training ends by rank 0's word or by who stays away") {
  std::mt19937 random(1);
  int words = 0, aways = 0, missing = 0;
  for (int round = 0; round < 2000; ++round) {
    CAPTURE(round);
    const int workers = 1 + static_cast<int>(random() % 4);
    const int come = static_cast<int>(random() % 40);
    const int back = static_cast<int>(random() % 3) * 10;
    const Attendance::Time begin = std::chrono::steady_clock::now();
    Attendance attendance(workers, begin + milliseconds(come),
                          milliseconds(back));
    std::vector<Diary> diaries(static_cast<size_t>(workers));
    std::optional<bool> end;
    for (int now = 0; now < 60 && !end; ++now) {
      const size_t rank = random() % diaries.size();
      Diary& diary = diaries[rank];
      const bool there = !diary.empty() && diary.back().second;
      const unsigned event = random() % 8;
      if (event < 3) {
        attendance.Came(static_cast<int>(rank));
        if (!there) diary.emplace_back(now, true);
      } else if (event == 3) {
        attendance.Gone(static_cast<int>(rank), Unavailable("cut"),
                        begin + milliseconds(now));
        if (there) diary.emplace_back(now, false);
      } else if (event == 4) {  // nobody's
        attendance.Came(-1);
        attendance.Gone(workers, Unavailable("cut"), begin);
      }
      const bool word = random() % 64 == 0;
      if (word) attendance.TrainingEnded();
      // So that several may be away when it is asked.
      if (!word && random() % 3 != 0) continue;
      auto ended = attendance.Ended(begin + milliseconds(now));
      // Who went first, of those.
      auto away = diaries.end();
      for (auto one = diaries.begin(); one != diaries.end(); ++one) {
        if (!StaysAway(*one, now, back)) continue;
        const bool first =
            away == diaries.end() || one->back().first < away->back().first;
        if (first) away = one;
      }
      std::vector<int> never;
      for (int i = 0; i < workers; ++i) {
        if (diaries[static_cast<size_t>(i)].empty()) never.push_back(i);
      }
      CHECK(attendance.Missing() == never);
      if (word) {
        CHECK(*ended);
        ++words;
        end = true;
      } else if (away != diaries.end()) {
        REQUIRE(!ended.ok());
        CHECK(Contains(ended.status().message(),
                       fmt::format("rank {} of {} is gone",
                                   away - diaries.begin(), workers)));
        CHECK(Contains(ended.status().message(), "cut"));
        ++aways;
        end = true;
      } else if (!never.empty() && now >= come) {
        REQUIRE(!ended.ok());
        for (const int rank_of : never) {
          CHECK(Contains(ended.status().message(), std::to_string(rank_of)));
        }
        CHECK(Contains(ended.status().message(), "did not come"));
        ++missing;
        end = true;
      } else {
        CHECK(!*ended);
      }
    }
  }
  CHECK(words > 200);
  CHECK(aways > 200);
  CHECK(missing > 200);
}

}  // namespace
}  // namespace sluice::dist
