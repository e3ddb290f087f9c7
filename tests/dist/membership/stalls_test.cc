#include "dist/membership/stalls.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/dist/collective/hosts.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;

TEST_CASE("who has not come is named after the limit and each time after it") {
  Stalls stalls(4, milliseconds(1000));
  const auto lines = [&](int rounds) {
    std::vector<std::string> said;
    for (int i = 0; i < rounds; ++i) {
      if (const auto line = stalls.Pass(milliseconds(100))) {
        said.push_back(*line);
      }
    }
    return said;
  };
  CHECK(lines(100).empty());
  for (const int rank : {0, 1, 2, 3}) stalls.Heard(rank, 7, "");
  CHECK(lines(100).empty());
  stalls.Heard(0, 8, "sum/a");
  stalls.Heard(2, 8, "sum/a");
  CHECK(lines(21) ==
        std::vector<std::string>{
            "ranks 1, 3 of 4 have not come to 'sum/a', where others have been "
            "waiting for 1 s",
            "ranks 1, 3 of 4 have not come to 'sum/a', where others have been "
            "waiting for 2 s",
            "ranks 1, 3 of 4 have not come to 'sum/a', where others have been "
            "waiting for 3 s"});
  stalls.Heard(1, 8, "");
  CHECK(lines(10) ==
        std::vector<std::string>{"rank 3 of 4 has not come to 'sum/a', where "
                                 "others have been waiting for 4 s"});
  stalls.Heard(3, 8, "");
  CHECK(lines(10) == std::vector<std::string>{
                         "nothing has moved in 'sum/a' for 5 s, where all 4 "
                         "ranks are or have been"});
  for (const int rank : {0, 1, 2, 3}) stalls.Heard(rank, 9, "");
  CHECK(lines(100).empty());
  // The next one is another.
  stalls.Heard(3, 10, "sum/b");
  CHECK(lines(1) ==
        std::vector<std::string>{"ranks 0, 1, 2 of 4 have not come to 'sum/b', "
                                 "where others have been waiting for 1 s"});
}

TEST_CASE("of several hosts that of a rank is named, too") {
  Stalls stalls(3, milliseconds(1000), {"a", "b", "10.0.0.3"});
  stalls.Heard(0, 8, "sum/a");
  CHECK(stalls.Pass(milliseconds(100)) ==
        "ranks 1 (b), 2 (10.0.0.3) of 3 have not come to 'sum/a', where others "
        "have been waiting for 1 s");
}

TEST_CASE("a rank that is late is named, and the job goes on") {
  const testing::Watchdog watchdog;
  for (const int late : {0, 1, 2, 3, 4}) {
    // One host, or three.
    const bool one = late < 3;
    const std::string name = one ? fmt::format("rank {}", late)
                                 : fmt::format("rank {0} (host{0})", late - 3);
    CAPTURE(name);
    std::mutex mutex;
    std::string said;
    GroupOptions options;
    options.stall_note = milliseconds(300);
    options.note = [&](std::string_view line) {
      const std::lock_guard lock(mutex);
      said += std::string(line) + "\n";
    };
    {
      testing::Groups groups =
          one ? testing::JoinAll(3, options)
              : testing::JoinOn({0, 1, 2}, Algorithm::kAuto,
                                testing::Wires::kTcp, options);
      const auto statuses = testing::OnAll(groups, [&](Group& group) -> Status {
        for (int step = 0; step < 3; ++step) {
          if (step == 1 && group.rank() == late % 3) {
            // Until it has been said.
            for (bool named = false; !named;) {
              std::this_thread::sleep_for(milliseconds(10));
              const std::lock_guard lock(mutex);
              named = said.find(name +
                                " of 3 has not come to 'lunch', where others "
                                "have been") != std::string::npos;
            }
          }
          SLUICE_RETURN_IF_ERROR(group.Barrier(step == 1 ? "lunch" : "work"));
        }
        return {};
      });
      for (const Status& status : statuses)
        CHECK_MESSAGE(status.ok(), status.message());
    }
  }
}

}  // namespace
}  // namespace sluice::dist
