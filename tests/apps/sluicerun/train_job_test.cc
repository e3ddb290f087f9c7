// Several processes train one model: one voice, one folder, one end, whatever
// happens to one of them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/places.h"
#include "tests/support/last_object.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/real_data.h"

namespace sluice {
namespace {

using testing::CheckSameTensors;
using testing::Contains;
using testing::KillRank;
using testing::kLauncher;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::SavedStep;
using testing::TemporaryFolder;

// Of mnist train by so many processes.
std::vector<std::string> Job(int size, const std::vector<std::string>& more,
                             const std::string& command = "train") {
  return testing::Launched(size, testing::kMnist, OnMnist(command, more));
}

Outcome RunJob(int size, const std::vector<std::string>& more,
               const std::string& command = "train") {
  return testing::RunProgram(kLauncher, Job(size, more, command));
}

// The events of a kind, which rank 0 alone prints.
std::vector<nlohmann::ordered_json> EventsOf(const Outcome& outcome,
                                             const std::string& kind) {
  std::vector<nlohmann::ordered_json> events;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(line.starts_with("[0] "));
    const auto event = nlohmann::ordered_json::parse(line.substr(4));
    if (event["event"] == kind) events.push_back(event);
  }
  return events;
}

double AccuracyOf(const Outcome& outcome) {
  const auto results = EventsOf(outcome, "result");
  REQUIRE(results.size() == 1);
  return results[0]["test_accuracy"];
}

void CheckSame(const std::string& a, const std::string& b) {
  CheckSameTensors(NewestTensors(a), NewestTensors(b));
}

TEST_CASE("processes train what one trains, and speak with one voice") {
  std::vector<double> losses;  // of one process
  for (const int size : {1, 2, 3}) {
    TemporaryFolder folder;
    const Outcome outcome =
        RunJob(size, {"--log-dir", folder / "log", "--epochs", "3", "--json",
                      "--log-every", "1"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const auto steps = EventsOf(outcome, "step");
    REQUIRE(steps.size() == 30);
    for (size_t i = 0; i < steps.size(); ++i) {
      const double loss = steps[i]["loss"];
      if (size == 1) losses.push_back(loss);
      CHECK(loss == doctest::Approx(losses[i]).epsilon(1e-3));
    }
    CHECK(AccuracyOf(outcome) > 0.3);
    CHECK(outcome.err.find("[1]") == std::string::npos);
    // It is evaluated and trained further by one process.
    CHECK(testing::RunMnist(OnMnist("eval", {"--log-dir", folder / "log"}))
              .code == 0);
    const Outcome further = testing::RunMnist(
        OnMnist("train", {"--log-dir", folder / "log", "--epochs", "4"}));
    CHECK(further.code == 0);
    CHECK(Contains(further.err, "resuming from step 30"));
  }
}

TEST_CASE("a job says how fast each process is, and how long each waits") {
  for (const int size : {1, 3}) {
    const std::vector<std::string> more = {"--epochs", "2", "--log-every", "5"};
    const Outcome text = RunJob(size, more);
    CAPTURE(text.err);
    CHECK(text.code == 0);
    CHECK(Contains(text.err, " examples/s (") == (size > 1));
    CHECK(Contains(text.err, " per worker") == (size > 1));

    const Outcome told = RunJob(size, {more[0], more[1], "--json"});
    const auto steps = EventsOf(told, "step");
    REQUIRE_FALSE(steps.empty());
    const auto& last = steps.back();
    const char* const each = "examples_per_second_per_worker";
    const char* const waits = "exchange_wait_by_rank";
    CHECK(last.contains(each) == (size > 1));
    CHECK(last.contains(waits) == (size > 1));
    CHECK_FALSE(last.contains("examples_per_second_by_rank"));  // alike
    if (size == 1) continue;
    CHECK(last[each].get<double>() ==
          doctest::Approx(last["examples_per_second"].get<double>() / size));
    REQUIRE(last[waits].size() == 3);
    for (const double wait : last[waits]) {
      CHECK(wait >= 0);
      CHECK(wait <= 1);
    }
  }
}

TEST_CASE("processes of one host share what may be read ahead") {
  double alone = 0;
  for (const int size : {1, 4}) {
    const Outcome outcome = RunJob(size, {"--steps", "1", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const double bytes = EventsOf(outcome, "start").at(0)["input_bytes"];
    CAPTURE(bytes);
    if (size == 1) alone = bytes;
    // Others take memory meanwhile, and give it back.
    CHECK(size * bytes > 0.4 * alone);
    CHECK(size * bytes < 2.5 * alone);
  }
  const Outcome outcome =
      RunJob(2, {"--steps", "1", "--json", "--input-memory", "3M"});
  CHECK(EventsOf(outcome, "start").at(0)["input_bytes"] == 3 << 20);
}

TEST_CASE("what is given for each process is that times their number") {
  TemporaryFolder folder;
  const auto train = [&](const std::string& log,
                         const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--log-dir", folder / log,  "--steps",
                                    "6",         "--optimizer", "momentum"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = RunJob(2, all);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
  };
  train("job", {"--batch-size", "12", "--learning-rate", "0.125"});
  train("each", {"--batch-size-per-worker", "6", "--learning-rate", "0.0625",
                 "--scale-learning-rate", "linear"});
  train("half", {"--batch-size", "12", "--learning-rate", "0.0625"});
  CheckSame(folder / "job", folder / "each");
  CHECK(!NewestTensors(folder / "half")
             .at("fc1/weights")
             .BitEqual(NewestTensors(folder / "each").at("fc1/weights")));
  const Outcome both =
      RunJob(2, {"--batch-size", "12", "--batch-size-per-worker", "6"});
  CHECK(both.code == 2);
  CHECK(Contains(both.err, "--batch-size-per-worker"));
}

TEST_CASE("a job that is interrupted or killed goes on as if it had not been") {
  std::mt19937 random(1);
  TemporaryFolder folder;
  // More epochs than are done, however late the signals come.
  const auto job = [&](const std::string& log,
                       const std::vector<std::string>& more) {
    return Job(
        2, testing::Joined({"--log-dir", folder / log, "--epochs", "1000000",
                            "--json", "--log-every", "1", "--save-every", "7",
                            "--threads", "1", "--evaluate-every", "10"},
                           more));
  };
  int64_t saved = 0;
  for (const int signal : {SIGINT, SIGKILL, SIGTERM, SIGKILL}) {
    const Process process(kLauncher, job("parts", {}));
    // The job, or one of its processes.
    const int64_t step = saved + 20 + static_cast<int64_t>(random() % 40);
    REQUIRE(process.WaitFor(fmt::format("\"step\":{},", step)));
    const auto rank = static_cast<int>(random() % 2);
    if (signal == SIGINT) {
      process.Kill(signal);
    } else {
      KillRank(process.pid(), rank, signal);
    }
    CAPTURE(rank);
    // Which end of a killed job the launcher hears of first is chance.
    const int code = process.Wait();
    CHECK((signal == SIGKILL ? code != 0 : code == 128 + signal));
    if (signal == SIGKILL && rank == 1) {
      CHECK(Contains(process.err(), "rank 1"));
    }
    CAPTURE(process.err());
    const int64_t now = SavedStep(folder / "parts");
    // One that is killed may have written nothing since it began.
    CHECK(now >= (signal == SIGKILL ? saved : saved + 1));
    saved = now;
  }
  const std::string last = std::to_string(saved + 170);
  for (const char* log : {"parts", "whole"}) {
    const Outcome outcome =
        testing::RunProgram(kLauncher, job(log, {"--max-steps", last}));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
  }
  CHECK(SavedStep(folder / "parts") == saved + 170);
  CheckSame(folder / "parts", folder / "whole");
}

// Of the launcher's jobs, which begin anew but once: what was there before is
// set aside, what they have trained themselves is not. An empty name is none.
TEST_CASE("a job that is started again goes on from its checkpoints") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  // Far more steps than the last kill is due after.
  const auto training = [](const std::string& log_dir) {
    return std::vector<std::string>{
        "--log-dir", log_dir,       "--epochs", "60",
        "--json",    "--log-every", "1",        "--save-every",
        "7",         "--threads",   "1",        "--restart"};
  };
  REQUIRE(RunJob(2, training(folder / "whole")).code == 0);
  REQUIRE(RunJob(1, {"--log-dir", log, "--steps", "5", "--seed", "9"}).code ==
          0);
  std::vector<std::string> words = Job(2, training(log));
  words.insert(words.begin(), {"--max-restarts", "2"});
  const Process process("/usr/bin/env",
                        testing::Joined({"SLUICE_JOB=", kLauncher}, words));
  for (const int step : {50, 210}) {
    REQUIRE(process.WaitFor(fmt::format("\"step\":{},", step)));
    KillRank(process.pid(), step == 50 ? 0 : 1, SIGKILL);
  }
  CHECK(process.Wait() == 0);
  CAPTURE(process.err());
  CHECK(Contains(process.err(), "(restart 2 of 2)"));
  CHECK(Contains(process.err(), "this job has begun anew before"));
  CheckSame(log, folder / "whole");
  int set_aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator(log)) {
    set_aside +=
        entry.path().filename().string().starts_with("previous-") ? 1 : 0;
  }
  CHECK(set_aside == 1);
  // Another job with the flag does begin anew.
  CHECK(RunJob(1, {"--log-dir", log, "--steps", "5", "--restart"}).code == 0);
  CHECK(CheckpointManager::ForReading(log).Steps().ValueOrThrow().back() == 5);
}

// Of twelve some are the standard ones and the launcher's: the others are fewer
// than the connections that rank 0 of four has.
TEST_CASE("processes raise their limit of descriptors as far as they may") {
  std::vector<std::string> shell = {
      "-c", "ulimit -S -n 12 && exec \"$0\" \"$@\"", kLauncher};
  for (const std::string& word : Job(4, {"--steps", "2"})) {
    shell.push_back(word);
  }
  const Outcome outcome = testing::RunProgram("/bin/sh", shell);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
}

TEST_CASE("a process that stands still is given up and named") {
  TemporaryFolder folder;
  const Process process(
      kLauncher, Job(2, {"--log-dir", folder / "log", "--epochs", "1000000",
                         "--json", "--log-every", "1", "--peer-timeout", "3"}));
  REQUIRE(process.WaitFor("\"step\":5,"));
  KillRank(process.pid(), 1, SIGSTOP);
  CHECK(process.Wait() != 0);
  CHECK(Contains(process.err(), "rank 1 of 2"));
}

// All of its processes, by the launcher, longer than they wait for each other.
TEST_CASE("a job that is stopped goes on when it is continued") {
  const Process process(kLauncher,
                        Job(2, {"--steps", "3000", "--json", "--log-every", "1",
                                "--peer-timeout", "3"}));
  REQUIRE(process.WaitFor("\"step\":20,"));
  kill(process.pid(), SIGTSTP);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  kill(process.pid(), SIGCONT);
  CHECK(process.Wait() == 0);
  CAPTURE(process.err());
  CHECK(Contains(process.out(), "\"step\":3000,"));
}

TEST_CASE("batches that do not go round are refused") {
  const Outcome outcome = RunJob(3, {"--batch-size", "2"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.err, "batches of 2"));
}

TEST_CASE("each by itself, if that is asked for, but not in one folder") {
  TemporaryFolder folder;
  const Outcome refused =
      RunJob(2, {"--strategy", "none", "--log-dir", folder / "log"});
  CHECK(refused.code == 1);
  CHECK(Contains(refused.err, "cannot have one --log-dir"));
  const Outcome outcome =
      RunJob(2, {"--strategy", "none", "--epochs", "1", "--json"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  for (const char* rank : {"[0] ", "[1] "}) {
    CHECK(Contains(outcome.out, std::string(rank) + "{\"event\":\"result\""));
  }
}

// Real digits; the synthetic ones above are learnt by anything.
TEST_CASE("two processes learn MNIST as well as one") {
  const auto data = testing::RealData("mnist");
  if (!data) return;
  double accuracy[2];
  for (const int size : {1, 2}) {
    const Outcome outcome = testing::RunProgram(
        kLauncher,
        {"-n", std::to_string(size), testing::kMnist, "train", "--data-dir",
         *data, "--model", "mlp", "--epochs", "2", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    accuracy[size - 1] = AccuracyOf(outcome);
  }
  CHECK(accuracy[1] > 0.94);
  CHECK(accuracy[1] == doctest::Approx(accuracy[0]).epsilon(0.003));
}

}  // namespace
}  // namespace sluice
