// What several processes try before a training: a rehearsal, a benchmark, a
// search for a learning rate. Each ends as one thing, whatever happens to one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/await.h"
#include "tests/support/last_object.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::Joined;
using testing::kLauncher;
using testing::kMnist;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::TemporaryFolder;
using testing::Words;

Outcome Launch(const Words& launcher, const Words& arguments) {
  return testing::RunProgram(kLauncher,
                             Joined(Joined(launcher, {kMnist}), arguments));
}

// The object that rank 0 alone prints.
nlohmann::ordered_json Said(const Outcome& outcome) {
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.find("[1]") == std::string::npos);
  const auto ranks = testing::ByRank(outcome.out);
  REQUIRE(ranks.size() == 1);
  return testing::LastObject(ranks.at(0));
}

// However they train; and nothing stays.
TEST_CASE("processes rehearse together") {
  TemporaryFolder folder;
  for (const auto& [launcher, flags] : std::vector<std::pair<Words, Words>>{
           {{"-n", "2"}, {}},
           {{"-n", "3"}, {"--virtual-workers", "4", "--deterministic"}},
           {{"-n", "2"}, {"--pipeline-stages", "2"}},
           {{"-n", "2", "--ps", "1"}, {"--strategy", "ps"}},
           {{"-n", "2", "--ps", "1"},
            {"--strategy", "ps", "--consistency", "async"}},
           {{"-n", "3", "--ps", "1"},
            {"--strategy", "ps", "--backup-workers", "1"}}}) {
    const Words rehearsal =
        Joined(OnMnist("train", {"--fast-dev-run", "--json"}), flags);
    const Outcome outcome = testing::RunProgram(
        "/bin/sh",
        Joined({"-c", "TMPDIR=$0 exec \"$@\"", folder.path(), kLauncher},
               Joined(Joined(launcher, {kMnist}), rehearsal)));
    CAPTURE(flags.empty() ? "" : flags.back());
    CHECK(Said(outcome)["ok"] == true);
    for (const char* stage :
         {"2 training steps: ", "resuming for one more step: ", "evaluation: ",
          "prediction of the exported model: ", "all is well"}) {
      CHECK(Contains(outcome.err, std::string("[0] fast dev run: ") + stage));
    }
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("processes time the steps of a training") {
  const auto json = [](const Words& launcher, const Words& flags) {
    return Said(
        Launch(launcher, Joined(OnMnist("bench", {"--json", "--steps", "5",
                                                  "--batch-size", "30"}),
                                flags)));
  };
  const auto one = testing::LastObject(
      RunMnist(OnMnist("bench", {"--json", "--steps", "5"})).out);
  CHECK_FALSE(one.contains("workers"));
  for (const auto& [launcher, flags] : std::vector<std::pair<Words, Words>>{
           {{"-n", "2"}, {}},
           {{"-n", "3"}, {"--compress-gradients", "bf16", "--overlap", "on"}},
           {{"-n", "2"}, {"--virtual-workers", "2"}},
           {{"-n", "2"}, {"--pipeline-stages", "2"}},
           {{"-n", "2", "--ps", "1"}, {"--strategy", "ps"}}}) {
    const auto result = json(launcher, flags);
    const int size = std::stoi(launcher[1]);
    CAPTURE(size);
    CHECK(result["workers"] == size);
    CHECK(result["batch"] == 30);
    CHECK(result["steps"] == 5);
    const double all = result["examples_per_second"];
    CHECK(all > 0);
    CHECK(result["examples_per_second_per_worker"].get<double>() ==
          doctest::Approx(all / size));
    CHECK(all == doctest::Approx(30 / result["seconds_mean"].get<double>()));
    REQUIRE(result["exchange_wait_by_rank"].size() ==
            static_cast<size_t>(size));
    for (const double wait : result["exchange_wait_by_rank"]) {
      CHECK(wait >= 0);
      CHECK(wait <= 1);
    }
  }
  const Outcome text = Launch(
      {"-n", "2"},
      OnMnist("bench", {"--steps", "3", "--batch-size-per-worker", "8"}));
  CHECK(text.code == 0);
  CHECK(Contains(text.out, "mlp training, batch 16, 2 processes of "));
  CHECK(Contains(text.out, " per worker); a step takes "));
}

TEST_CASE("processes look for a rate together") {
  TemporaryFolder folder;
  const auto search = [&](const std::string& page) {
    return OnMnist("train",
                   {"--json", "--find-rate", folder / page, "--threads", "1"});
  };
  const auto one = testing::LastObject(RunMnist(search("one.html")).out);
  auto two = Said(Launch({"-n", "2"}, search("two.html")));
  CHECK(two["suggested"].get<double>() ==
        doctest::Approx(one["suggested"].get<double>()).epsilon(0.5));
  CHECK(two["path"] == folder / "two.html");
  CHECK(Contains(testing::TextOf(folder / "two.html"), "<svg"));
}

TEST_CASE("what is for one process, or others, is refused for several") {
  TemporaryFolder folder;
  const auto refused = [](const Outcome& outcome, const std::string& part) {
    CAPTURE(part);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(outcome.out == "");
    CHECK(Contains(outcome.err, part));
  };
  const Words two = {"-n", "2"}, elastic = {"--elastic", "1:2"};
  refused(Launch(two, OnMnist("bench", {"--inference"})),
          "bench --inference is for one process, 2 were started");
  refused(Launch(two, OnMnist("bench", {"--device", "/null:0"})),
          "bench --device /null:0 is for one process");
  for (const Words& flags :
       {OnMnist("bench", {}), OnMnist("train", {"--fast-dev-run"}),
        OnMnist("train", {"--find-rate", folder / "page"})}) {
    refused(Launch(elastic, flags), "elastic jobs are for train");
  }
  refused(Launch({"-n", "1", "--ps", "1"},
                 OnMnist("train",
                         {"--strategy", "ps", "--find-rate", folder / "page"})),
          "--find-rate is for processes without parameter servers");
}

// Of which one is hit in the middle.
TEST_CASE("a benchmark ends with any of its processes") {
  const Words endless = Joined(
      {"-n", "2", kMnist},
      OnMnist("bench", {"--steps", "1000000000", "--peer-timeout", "10"}));
  for (const int rank : {0, 1}) {
    for (const int signal : {SIGINT, SIGKILL}) {
      CAPTURE(rank);
      CAPTURE(signal);
      const Process process(kLauncher, endless);
      // Which handles signals from when it has met the other.
      testing::AwaitTrue([&] {
        const pid_t pid = testing::Rank(process.pid(), rank);
        return pid > 0 && testing::MnistHandles(pid, SIGINT);
      });
      testing::KillRank(process.pid(), rank, signal);
      const int code = process.Wait();
      CAPTURE(process.err());
      CHECK(process.out() == "");
      if (signal == SIGINT) {
        CHECK(code == 128 + SIGINT);
        CHECK(Contains(process.err(), "[0] interrupted before all steps"));
      } else {
        CHECK(code != 0);
        CHECK(Contains(process.err(), fmt::format("rank {}", rank)));
      }
    }
  }
}

}  // namespace
}  // namespace sluice
