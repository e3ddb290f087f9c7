// Several processes evaluate what was trained: the figures of one, one voice,
// one end, whatever happens to one of them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/await.h"
#include "tests/support/last_object.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::KillRank;
using testing::kLauncher;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::TemporaryFolder;
using testing::Words;

// Of a training by one process, for all cases.
const std::string& Trained() {
  static const TemporaryFolder folder;
  static const std::string log = [] {
    REQUIRE(RunMnist(OnMnist("train",
                             {"--log-dir", folder / "log", "--epochs", "2"}))
                .code == 0);
    return folder / "log";
  }();
  return log;
}

Outcome Launch(int size, const Words& arguments) {
  return testing::RunProgram(
      kLauncher, testing::Launched(size, testing::kMnist, arguments));
}

Words Eval(const Words& more) {
  return testing::Joined({"eval", "--log-dir", Trained()}, more);
}

// What rank 0 alone prints.
std::string Said(const Outcome& outcome) {
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.find("[1]") == std::string::npos);
  std::string said;
  for (const auto& [rank, lines] : testing::ByRank(outcome.out)) {
    CHECK(rank == 0);
    said += lines;
  }
  CHECK(testing::Lines(said) == 1);
  return said;
}

// 230 digits: the last batch of the default size leaves the last processes
// none, that of 7 leaves each some.
TEST_CASE("processes evaluate as one does, and speak with one voice") {
  const auto result = [](const std::string& line) {
    auto json = nlohmann::ordered_json::parse(line);
    json.erase("seconds");
    json.erase("examples_per_second");
    return json;
  };
  for (const Words& more :
       {Words{}, {"--batch-size", "7"}, {"--checkpoint", "newest"}}) {
    const Words json = testing::Joined(Eval({"--json"}), more);
    const Outcome alone = RunMnist(json);
    REQUIRE(alone.code == 0);
    auto one = result(alone.out);
    for (const int size : {2, 3}) {
      CAPTURE(size);
      auto several = result(Said(Launch(size, json)));
      CHECK(several["test_accuracy"].get<double>() ==
            doctest::Approx(one["test_accuracy"].get<double>()).epsilon(1e-6));
      several["test_accuracy"] = one["test_accuracy"];
      CHECK(several == one);
    }
  }
  const std::string text = Said(Launch(2, Eval({})));
  CHECK(Contains(text, "mlp on mnist: test loss "));
  CHECK(Contains(text, "(230 examples) after 20 steps; "));
  CHECK(Contains(Launch(2, Eval({})).err, "[0] using " + Trained()));
}

TEST_CASE("what an evaluation by several cannot do is said in one line") {
  TemporaryFolder folder;
  const auto refused = [](const Words& words, const std::string& part,
                          int code = 1) {
    const Outcome outcome = testing::RunProgram(kLauncher, words);
    CAPTURE(part);
    CAPTURE(outcome.err);
    CHECK(outcome.code == code);
    CHECK(outcome.out == "");
    CHECK(Contains(outcome.err, part));
  };
  const auto two = [](const Words& arguments) {
    return testing::Launched(2, testing::kMnist, arguments);
  };
  refused(two(Eval({"--report", folder / "page.html"})),
          "eval --report is for one process, 2 were started");
  refused(two(Eval({"--follow"})), "eval --follow is for one process");
  refused(two({"predict", "--log-dir", Trained()}),
          "predict is for one process");
  refused(two({"export", "--log-dir", Trained()}), "export is for one process");
  refused(two(Eval({"--skip-bad", "1"})), "--skip-bad is for one process");
  refused(two({"eval", "--log-dir", folder / "none"}), "no checkpoint in");
  refused(two(Eval({"--batch-size", "1"})), "batches of 1 cannot be shared");
  refused(testing::Joined({"--elastic", "1:2", testing::kMnist}, Eval({})),
          "elastic jobs are for train");
  refused(testing::Joined({"-n", "1", "--ps", "1", testing::kMnist}, Eval({})),
          "which only --strategy ps uses");
}

// Many small batches, so that it is far from its end when it is hit.
class Long {
 public:
  Long()
      : data_(100, 20000),
        process_(kLauncher, testing::Launched(2, testing::kMnist,
                                              Eval({"--data-dir", data_.path(),
                                                    "--batch-size", "2",
                                                    "--peer-timeout", "10"}))) {
    testing::AwaitTrue(
        [&] { return process_.err().find("[0] using ") != std::string::npos; });
  }
  const Process& operator*() const { return process_; }
  const Process* operator->() const { return &process_; }

 private:
  testing::IdxFolder data_;
  Process process_;
};

TEST_CASE("an evaluation that is interrupted anywhere ends everywhere") {
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const int rank : {-1, 0, 1}) {
      CAPTURE(signal);
      CAPTURE(rank);
      const Long evaluation;
      if (rank < 0) {
        evaluation->Kill(signal);
      } else {
        KillRank(evaluation->pid(), rank, signal);
      }
      CHECK(evaluation->Wait() == 128 + signal);
      CHECK(evaluation->out() == "");
    }
  }
}

TEST_CASE("an evaluation that loses a process names it, and ends") {
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const Long evaluation;
    KillRank(evaluation->pid(), rank, SIGKILL);
    CHECK(evaluation->Wait() != 0);
    CAPTURE(evaluation->err());
    CHECK(Contains(evaluation->err(), fmt::format("rank {}", rank)));
    CHECK(evaluation->out() == "");
  }
}

}  // namespace
}  // namespace sluice
