// sluicerun --max-restarts.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <fstream>
#include <string>
#include <tuple>

#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::AwaitTrue;
using testing::ByRank;
using testing::Contains;
using testing::Job;
using testing::kLauncher;
using testing::Lines;
using testing::Outcome;
using testing::Process;
using testing::RunJob;
using testing::TemporaryFolder;

TEST_CASE("a job that fails is started again as often as it may be") {
  SUBCASE("until it ends well") {
    // Says the job's name and which start it is. Rank 1 fails twice, once rank
    // 0 has spoken.
    const std::string fails_twice =
        "n=$(($(cat $1/$SLUICE_RANK | wc -l) + 1)); echo $SLUICE_JOB $n; "
        "echo x >> $1/$SLUICE_RANK; [ $n -gt 2 ] && exit 0; "
        "[ $SLUICE_RANK = 0 ] && exec sleep 100; "
        "while [ $(cat $1/0 | wc -l) -lt $n ]; do sleep 0.01; done; "
        "kill -KILL $$";
    const TemporaryFolder folder;
    for (const char* rank : {"0", "1"}) std::ofstream file(folder / rank);
    const Outcome outcome =
        RunJob(2, fails_twice, {"--max-restarts", "5"}, {folder.path()});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    for (int restart = 1; restart <= 2; ++restart) {
      CHECK(Contains(outcome.err,
                     fmt::format("starting the job again in {} s (restart {} "
                                 "of 5)",
                                 restart, restart)));
    }
    for (const auto& [rank, text] : ByRank(outcome.out)) {
      CAPTURE(rank);
      const std::string name = text.substr(0, text.find(' '));
      CHECK(name.size() == 16);
      CHECK(text == fmt::format("{0} 1\n{0} 2\n{0} 3\n", name));
    }
  }
  SUBCASE("but no more often, and not where that helps nothing") {
    for (const auto& [restarts, code, starts] :
         {std::tuple("0", 3, 1), std::tuple("1", 3, 2), std::tuple("9", 2, 1),
          std::tuple("9", 126, 1), std::tuple("9", 127, 1)}) {
      const TemporaryFolder folder;
      const Outcome outcome = RunJob(
          2,
          "echo x >> $1/$SLUICE_RANK; [ $SLUICE_RANK = 1 ] || "
          "exec sleep 100; exit $2",
          {"--max-restarts", restarts}, {folder.path(), std::to_string(code)});
      CAPTURE(outcome.err);
      CHECK(outcome.code == code);
      CHECK(Lines(testing::TextOf(folder / "1")) == starts);
    }
  }
  SUBCASE("nor where a signal came, also between two starts") {
    const TemporaryFolder folder;
    const Process between(kLauncher, Job(1, "exit 3", {"--max-restarts", "9"}));
    AwaitTrue(
        [&] { return between.err().find("in 2 s") != std::string::npos; });
    between.Kill(SIGTERM);
    CHECK(between.Wait() == 128 + SIGTERM);
    const Process during(kLauncher, Job(1, "echo ready; exec sleep 100",
                                        {"--max-restarts", "9"}));
    AwaitTrue([&] { return Lines(during.out()) == 1; });
    during.Kill(SIGINT);
    CHECK(during.Wait() == 128 + SIGINT);
    CHECK(during.err().find("again") == std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
