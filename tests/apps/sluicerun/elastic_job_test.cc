// Elastic jobs: processes that are killed or stand still, and a training that
// goes on without them as if nothing had been.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"

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
using testing::Rank;
using testing::SavedStep;
using testing::TemporaryFolder;
using testing::Words;

// So many that a training is far from its end when the last kill is due.
constexpr int kEpochs = 60;

// Of so many processes, each with a thread; `launcher` are its own flags.
Words Job(int size, const Words& launcher, const Words& more) {
  Words words = {"-n", std::to_string(size)};
  words.insert(words.end(), launcher.begin(), launcher.end());
  words.push_back(testing::kMnist);
  const Words arguments = OnMnist("train", more);
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {"--threads", "1"});
  return words;
}

Words Flags(const std::string& log_dir, int epochs,
            const std::string& save_every = "7",
            const std::string& evaluate_every = "0.7") {
  return {"--log-dir",
          log_dir,
          "--epochs",
          std::to_string(epochs),
          "--json",
          "--log-every",
          "1",
          "--save-every",
          save_every,
          "--evaluate-every",
          evaluate_every,
          "--deterministic",
          "--virtual-workers",
          "4"};
}

// The same training by one process, undisturbed.
const std::map<std::string, Tensor>& Undisturbed(int epochs) {
  static std::map<int, std::map<std::string, Tensor>> known;
  const auto found = known.find(epochs);
  if (found != known.end()) return found->second;
  TemporaryFolder folder;
  const Outcome outcome = testing::RunProgram(
      kLauncher, Job(1, {}, Flags(folder / "alone", epochs)));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return known[epochs] = NewestTensors(folder / "alone");
}

// Or a later one: of a step that rank 0 had done when it died there may be no
// line.
void AwaitStep(const Process& process, int64_t step) {
  constexpr std::string_view kEvent = "\"event\":\"step\",\"step\":";
  testing::AwaitTrue([&] {
    const std::string out = process.out();
    const size_t last = out.rfind(kEvent);
    return last != std::string::npos &&
           std::atoll(out.c_str() + last + kEvent.size()) >= step;
  });
}

void CheckWhole(const std::string& log_dir, int epochs) {
  CHECK(SavedStep(log_dir) == 10 * epochs);
  CheckSameTensors(NewestTensors(log_dir), Undisturbed(epochs));
}

TEST_CASE("whoever is killed, and comes, a training has the bits of one") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 3; ++trial) {
    CAPTURE(trial);
    TemporaryFolder folder;
    Words launcher = {"--elastic", "1", "--max-restarts", "2"};
    if (trial == 1) launcher.emplace_back("--tls");
    const Process process(kLauncher,
                          Job(3, launcher, Flags(folder / "log", kEpochs)));
    int64_t step = 10;
    int killed = 0;
    // Rank 0 first, and then anybody; some before others have come.
    for (const int which :
         {0, static_cast<int>(random() % 3), static_cast<int>(random() % 3)}) {
      step += 5 + static_cast<int64_t>(random() % 60);
      AwaitStep(process, step);
      for (int i = 0; i < 3; ++i) {
        const pid_t pid = Rank(process.pid(), (which + i) % 3);
        if (pid <= 0) continue;
        kill(pid, SIGKILL);
        ++killed;
        break;
      }
    }
    CHECK(process.Wait() == 0);
    CAPTURE(process.err());
    CHECK(killed == 3);
    CHECK(Contains(process.err(), "rank 0 ended by SIGKILL"));
    CHECK(Contains(process.err(), "(restart 2 of 2)"));
    CHECK(Contains(process.err(), "(membership 2)"));
    CHECK(process.err().find("starting the job") == std::string::npos);
    CHECK(Contains(process.out(), "\"test_accuracy\":"));
    CheckWhole(folder / "log", kEpochs);
  }
}

TEST_CASE("--restart is for the beginning, not for those that come") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  const Outcome before =
      testing::RunProgram(kLauncher, Job(1, {}, Flags(log, 2)));
  REQUIRE(before.code == 0);
  Words flags = Flags(log, kEpochs);
  flags.emplace_back("--restart");
  const Process process(
      kLauncher, Job(2, {"--elastic", "1", "--max-restarts", "2"}, flags));
  for (const auto& [rank, step] : {std::pair(0, 30), std::pair(1, 70)}) {
    AwaitStep(process, step);
    KillRank(process.pid(), rank, SIGKILL);
  }
  CHECK(process.Wait() == 0);
  CAPTURE(process.err());
  CHECK(std::filesystem::exists(log + "/previous-1"));
  CHECK(!std::filesystem::exists(log + "/previous-2"));
  CheckWhole(log, kEpochs);
  // Its log has each step once, whoever wrote it, but perhaps for those that
  // two had done and not written when they died.
  std::ifstream scalars(log + "/scalars.csv");
  std::map<std::string, int> rows;
  for (std::string line; std::getline(scalars, line);) {
    if (line.find(",train,loss,") == std::string::npos) continue;
    ++rows[line.substr(line.find(','), line.find(",train,") - line.find(','))];
  }
  CHECK(rows.size() >= 10 * kEpochs - 2);
  for (const auto& [step, times] : rows) {
    CAPTURE(step);
    CHECK(times == 1);
  }
}

// Which leads then, and has been started with --restart, too.
TEST_CASE("--restart: one that has come in and is left alone goes on") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  // Many evaluations, so that it comes in before the end.
  Words flags = Flags(log, kEpochs, "3", "0.1");
  flags.emplace_back("--restart");
  const Process process(
      kLauncher, Job(2, {"--elastic", "1", "--max-restarts", "1"}, flags));
  AwaitStep(process, 20);
  KillRank(process.pid(), 1, SIGKILL);
  testing::AwaitTrue([&] { return Contains(process.err(), "has come in"); });
  KillRank(process.pid(), 0, SIGKILL);
  CHECK(process.Wait() == 0);
  CAPTURE(process.err());
  CHECK(Contains(process.err(), "rank 0 ended by SIGKILL"));
  CHECK(!Contains(process.err(), "the earlier training is now in"));
  CHECK(!std::filesystem::exists(log + "/previous-1"));
  CheckWhole(log, kEpochs);
}

TEST_CASE("one that stands still is killed, and the others go on") {
  for (const int rank : {0, 2}) {
    CAPTURE(rank);
    TemporaryFolder folder;
    Words flags = Flags(folder / "log", kEpochs);
    flags.insert(flags.end(), {"--peer-timeout", "2"});
    const Process process(kLauncher, Job(3, {"--elastic", "2"}, flags));
    AwaitStep(process, 30);
    KillRank(process.pid(), rank, SIGSTOP);
    CHECK(process.Wait() == 0);
    CAPTURE(process.err());
    CHECK(Contains(process.err(),
                   fmt::format("rank {} shows no sign of life", rank)));
    CHECK(Contains(process.err(), "2 processes go on from step"));
    CheckWhole(folder / "log", kEpochs);
  }
}

TEST_CASE("too few save, say so, and the same command goes on") {
  TemporaryFolder folder;
  // Nothing is saved on the way.
  const Words flags = Flags(folder / "log", kEpochs, "0", "0");
  const Words job = Job(2, {"--elastic", "2:2"}, flags);
  {
    const Process process(kLauncher, job);
    AwaitStep(process, 37);
    KillRank(process.pid(), 0, SIGKILL);
    CHECK(process.Wait() != 0);
    CAPTURE(process.err());
    CHECK(Contains(process.err(),
                   "1 of at least 2 processes is left, and no other has come "
                   "(rank 0 ended by SIGKILL)"));
    CHECK(Contains(process.err(), "the same command goes on"));
    CHECK(SavedStep(folder / "log") >= 36);
  }
  const Outcome rest = testing::RunProgram(kLauncher, job);
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CheckWhole(folder / "log", kEpochs);
}

TEST_CASE("an interrupt while they meet ends all, and nothing is lost") {
  for (const int rank : {0, 1}) {
    TemporaryFolder folder;
    const Words job = Job(3, {"--elastic", "3", "--max-restarts", "9"},
                          Flags(folder / "log", kEpochs));
    int64_t saved = 0;
    {
      const Process process(kLauncher, job);
      AwaitStep(process, 33);
      // Two that are left wait for a third.
      KillRank(process.pid(), rank, SIGKILL);
      kill(process.pid(), SIGINT);
      CHECK(process.Wait() == 128 + SIGINT);
      CAPTURE(process.err());
      saved = SavedStep(folder / "log");
      CHECK(saved >= 32);
      CHECK(saved < 10 * kEpochs);
    }
    const Outcome rest = testing::RunProgram(kLauncher, job);
    CAPTURE(rest.err);
    CHECK(rest.code == 0);
    CheckWhole(folder / "log", kEpochs);
  }
}

TEST_CASE("one that fails by itself ends the job, in its own words") {
  TemporaryFolder folder;
  // Whose folder cannot be written.
  const Outcome outcome = testing::RunProgram(
      kLauncher, Job(2, {"--elastic", "1", "--max-restarts", "0"},
                     Flags("/proc/none", 3)));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.err, "rank 0 ended with code 1"));
  CHECK(Contains(outcome.err, "/proc/none"));
}

TEST_CASE("processes that are no training may be lost, too") {
  const Outcome outcome = testing::RunProgram(
      kLauncher,
      {"-n", "2", "--elastic", "1", "--max-restarts", "1", "/bin/sh", "-c",
       "test $SLUICE_RANK = 0 && kill -9 $$; echo $SLUICE_RANK"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(Contains(outcome.err, "started again (restart 1 of 1)"));
  CHECK(outcome.out == "[1] 1\n");
  const Outcome all = testing::RunProgram(
      kLauncher, {"-n", "2", "--elastic", "1", "/bin/sh", "-c", "kill -9 $$"});
  CAPTURE(all.err);
  CHECK(all.code == 128 + SIGKILL);
  CHECK(Contains(all.err, "ended by SIGKILL"));
}

TEST_CASE("what elastic jobs are not made for is one line") {
  const auto refused = [](const Words& words, int code,
                          const std::string& part) {
    const Outcome outcome = testing::RunProgram(kLauncher, words);
    CAPTURE(outcome.err);
    CHECK(outcome.code == code);
    CHECK(Contains(outcome.err, part));
  };
  for (const char* text : {"0", "x", "2:", ":2", "1:0", "-1", "1:2:3"}) {
    refused({"-n", "2", "--elastic", text, "true"}, 2, "--elastic");
  }
  refused({"-n", "2", "--elastic", "3", "true"}, 2, "never so many");
  refused({"-n", "2", "--elastic", "1:4", "true"}, 2, "--elastic 1:4 and -n 2");
  refused({"--elastic", "3:2", "true"}, 2, "never so many");
  refused({"-H", "a,b", "--elastic", "3", "true"}, 2, "never so many");
  refused({"-H", "a,b", "--elastic", "1:4", "true"}, 1, "2 slots");
  refused({"-n", "2", "--ps", "1", "--elastic", "1", "true"}, 2,
          "ranks that sluicerun starts");
  refused({"-n", "2", "--elastic", "1", "--emit", "slurm", "true"}, 2,
          "ranks that sluicerun starts");
  refused(Job(2, {"--elastic", "1"}, {"--strategy", "none"}), 1,
          "--strategy none");
  refused(Job(2, {"--elastic", "1"}, {"--transport", "mpi"}), 1, "mpi");
  refused(Job(2, {"--elastic", "1"}, {"--batch-size-per-worker", "10"}), 1,
          "--batch-size-per-worker and --scale-learning-rate");
  // A newcomer would make them another number of virtual workers.
  refused(Job(2, {"--elastic", "1"}, {"--micro-batches", "2"}), 1,
          "--micro-batches: the number of processes");
}

}  // namespace
}  // namespace sluice
