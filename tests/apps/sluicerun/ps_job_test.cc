// Jobs with parameter servers: processes that train what one does, and end in
// one line whatever happens to one of them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/places.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/real_data.h"

namespace sluice {
namespace {

using testing::CheckSameTensors;
using testing::Contains;
using testing::kLauncher;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::Rank;
using testing::SavedStep;
using testing::TemporaryFolder;
using testing::Words;

// mnist train by so many workers on so many servers; none: as a ring.
Words Job(int workers, int servers, const Words& more) {
  Words arguments = OnMnist("train", more);
  Words words = {"-n", std::to_string(workers)};
  if (servers > 0) {
    words.insert(words.end(), {"--ps", std::to_string(servers)});
    arguments.insert(arguments.end(), {"--strategy", "ps"});
  }
  words.push_back(testing::kMnist);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

Outcome RunJob(int workers, int servers, const Words& more) {
  return testing::RunProgram(kLauncher, Job(workers, servers, more));
}

void Train(int workers, int servers, const Words& more) {
  const Outcome outcome = RunJob(workers, servers, more);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
}

void CheckSame(const std::string& a, const std::string& b) {
  CheckSameTensors(NewestTensors(a), NewestTensors(b));
}

// The process of a server of a launcher's job; 0: there is none.
pid_t Server(pid_t launcher, int server) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", launcher));
  pid_t child = 0;
  while (file >> child) {
    const std::string environment =
        testing::TextOf(fmt::format("/proc/{}/environ", child));
    if (environment.find(fmt::format("SLUICE_SERVER={}", server) + '\0') !=
        std::string::npos) {
      return child;
    }
  }
  return 0;
}

// The flags of one that a test goes through.
void AddConsistency(const std::string& consistency, Words& words) {
  const bool backups = consistency == "backups";
  words.push_back(backups ? "--backup-workers" : "--consistency");
  words.push_back(backups ? "1" : consistency);
}

TEST_CASE("one worker on servers trains the bits of one process") {
  TemporaryFolder folder;
  const auto flags = [&](const std::string& log) -> Words {
    return {"--log-dir", folder / log, "--epochs", "2", "--deterministic"};
  };
  Train(1, 0, flags("alone"));
  for (int servers = 1; servers <= 3; ++servers) {
    CAPTURE(servers);
    const std::string log = std::to_string(servers);
    Words words = flags(log);
    const char* const consistency[] = {"sync", "async", "ssp:3"};
    words.insert(words.end(), {"--consistency", consistency[servers - 1]});
    Train(1, servers, words);
    CheckSame(folder / log, folder / "alone");
  }
}

TEST_CASE("processes in step train the bits of a ring, encrypted too") {
  TemporaryFolder folder;
  const auto flags = [&](const std::string& log) -> Words {
    return {"--log-dir", folder / log, "--epochs", "2", "--deterministic"};
  };
  Train(2, 0, flags("ring"));
  Train(2, 2, flags("sync"));
  CheckSame(folder / "sync", folder / "ring");
  // Sums of two have one order.
  Words leaves = flags("leaves");
  leaves.insert(leaves.end(), {"--virtual-workers", "2"});
  Train(1, 0, leaves);
  CheckSame(folder / "sync", folder / "leaves");
  // Of four they have theirs.
  Words four = flags("four");
  four.insert(four.end(), {"--virtual-workers", "4"});
  Train(1, 0, four);
  Words served = flags("served");
  served.insert(served.end(), {"--virtual-workers", "4"});
  Train(3, 2, served);
  CheckSame(folder / "served", folder / "four");
  Words words = Job(2, 1, flags("tls"));
  words.insert(words.begin(), "--tls");
  const Outcome outcome = testing::RunProgram(kLauncher, words);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  CheckSame(folder / "tls", folder / "ring");
}

TEST_CASE("processes with their own speeds learn, and others go on") {
  for (const char* consistency : {"async", "ssp:1"}) {
    CAPTURE(consistency);
    TemporaryFolder folder;
    const Outcome outcome =
        RunJob(3, 2,
               {"--log-dir", folder / "log", "--epochs", "6", "--json",
                "--log-every", "4", "--consistency", consistency});
    CAPTURE(outcome.err);
    CAPTURE(outcome.out);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.err.find("[1]") == std::string::npos);
    CHECK(outcome.err.find("[ps") == std::string::npos);
    const size_t at = outcome.out.find("\"test_accuracy\":");
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(outcome.out.substr(at + 16)) > 0.3);
    CHECK(Contains(outcome.out, "\"staleness_mean\":"));
    CHECK(Contains(outcome.out, "\"staleness_max\":"));
    CHECK(Contains(outcome.out, "\"examples_per_second_by_rank\":["));
    // 60 steps, of three at once.
    CHECK(SavedStep(folder / "log") == 60);
    CHECK(NewestTensors(folder / "log").at("global_step").At(0) == 60);
    Train(1, 0, {"--log-dir", folder / "log", "--epochs", "7"});
    CHECK(SavedStep(folder / "log") == 70);
    Train(2, 1,
          {"--log-dir", folder / "log", "--epochs", "9", "--consistency",
           consistency});
    CHECK(SavedStep(folder / "log") == 90);
  }
}

TEST_CASE("a process that stands still is a backup's matter") {
  TemporaryFolder folder;
  Words words = Job(
      3, 2,
      {"--log-dir", folder / "log", "--epochs", "60", "--json", "--log-every",
       "1", "--evaluate-every", "0", "--backup-workers", "1"});
  const Process process(kLauncher, words);
  REQUIRE(process.WaitFor("\"step\":5,"));
  const pid_t pid = Rank(process.pid(), 2);
  REQUIRE(pid > 0);
  kill(pid, SIGSTOP);
  // Unless it was just then to apply a step, and all wait for it.
  bool went_on = false;
  for (int i = 0; i < 500 && !went_on; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    went_on = process.out().find("\"step\":400,") != std::string::npos;
  }
  kill(pid, SIGCONT);
  CHECK(process.Wait() == 0);
  CAPTURE(process.err());
  const std::string out = process.out();
  CAPTURE(out);
  CHECK(SavedStep(folder / "log") == 600);
  CHECK(NewestTensors(folder / "log").at("global_step").At(0) == 600);
  // One of three was dropped in each step.
  const size_t at = out.rfind("\"dropped\":[");
  REQUIRE(at != std::string::npos);
  int64_t first = 0, second = 0, third = 0;
  REQUIRE(std::sscanf(out.c_str() + at, "\"dropped\":[%ld,%ld,%ld]", &first,
                      &second, &third) == 3);
  CHECK(first + second + third == 600);
  if (went_on) CHECK(third >= 300);
  // Without servers none of it is left.
  Train(1, 0, {"--log-dir", folder / "log", "--epochs", "61"});
  CHECK(SavedStep(folder / "log") == 610);
}

TEST_CASE(
    "whoever is killed, the job ends, says who, and goes on from a file") {
  std::mt19937 random(2);
  for (const char* consistency : {"sync", "async", "ssp:2", "backups"}) {
    TemporaryFolder folder;
    Words job = Job(2, 1,
                    {"--log-dir", folder / "log", "--epochs", "100000",
                     "--json", "--log-every", "2", "--save-every", "6",
                     "--threads", "1", "--evaluate-every", "7"});
    AddConsistency(consistency, job);
    int64_t saved = 0;
    for (const char* victim : {"job", "worker", "server", "first"}) {
      CAPTURE(consistency);
      CAPTURE(victim);
      const Process process(kLauncher, job);
      const int64_t step = saved + 20 + 2 * static_cast<int64_t>(random() % 10);
      // A multiple of what steps are told after.
      REQUIRE(process.WaitFor(fmt::format("\"step\":{}", step - step % 2)));
      const std::string who = victim;
      if (who == "job") {
        kill(process.pid(), SIGINT);
      } else {
        const pid_t pid = who == "server"  ? Server(process.pid(), 0)
                          : who == "first" ? Rank(process.pid(), 0)
                                           : Rank(process.pid(), 1);
        REQUIRE(pid > 0);
        kill(pid, SIGKILL);
      }
      const int code = process.Wait();
      CAPTURE(process.err());
      if (who == "job") {
        CHECK(code == 128 + SIGINT);
      } else {
        CHECK(code != 0);
      }
      if (who == "server") CHECK(Contains(process.err(), "server 0"));
      if (who == "worker") CHECK(Contains(process.err(), "rank 1"));
      const int64_t now = SavedStep(folder / "log");
      // One that is killed may have written nothing since it began.
      CHECK(now >= (who == "job" ? step : saved));
      saved = now;
    }
    // What is there is whole: its counter has each update.
    CHECK(NewestTensors(folder / "log").at("global_step").At(0) == saved);
  }
}

// As systemd's to a service that is stopped; the launcher passes its own on.
TEST_CASE("a signal that comes to all of a job at once loses nothing") {
  for (const int servers : {0, 1}) {
    CAPTURE(servers);
    TemporaryFolder folder;
    const Process process(
        kLauncher,
        Job(2, servers,
            {"--log-dir", folder / "log", "--epochs", "100000", "--json",
             "--log-every", "1", "--evaluate-every", "0"}));
    REQUIRE(process.WaitFor("\"step\":20,"));
    std::vector<pid_t> all = {process.pid()};
    if (servers > 0) all.push_back(Server(process.pid(), 0));
    for (const int rank : {0, 1}) all.push_back(Rank(process.pid(), rank));
    REQUIRE(std::count(all.begin(), all.end(), 0) == 0);
    for (const pid_t pid : all) kill(pid, SIGTERM);
    CHECK(process.Wait() == 128 + SIGTERM);
    CAPTURE(process.err());
    CHECK(!Contains(process.err(), "ending at once"));
    CHECK(SavedStep(folder / "log") >= 20);
  }
}

TEST_CASE("where the launcher is killed, its servers end") {
  const Process process(
      kLauncher,
      Job(1, 1, {"--epochs", "100000", "--json", "--log-every", "1"}));
  REQUIRE(process.WaitFor("\"step\":5,"));
  const pid_t server = Server(process.pid(), 0);
  REQUIRE(server > 0);
  process.Kill(SIGKILL);
  CHECK(process.Wait() == -SIGKILL);
  testing::AwaitTrue([&] { return !testing::Runs(server); });
}

TEST_CASE("servers that are killed come back, and the same workers go on") {
  std::mt19937 random(5);
  TemporaryFolder folder;
  const auto flags = [&](const std::string& log) -> Words {
    return {"--log-dir", folder / log,       "--epochs", "40",
            "--json",    "--log-every",      "1",        "--save-every",
            "7",         "--evaluate-every", "0.7",      "--deterministic"};
  };
  Train(2, 0, flags("ring"));
  for (const char* consistency : {"sync", "async", "ssp:1", "backups"}) {
    CAPTURE(consistency);
    Words more = flags(consistency);
    AddConsistency(consistency, more);
    Words words = Job(2, 2, more);
    words.insert(words.begin(), {"--max-restarts", "3"});
    if (consistency == std::string("async")) {
      words.insert(words.begin(), "--tls");
    }
    const Process process(kLauncher, words);
    REQUIRE(process.WaitFor("\"step\":20,"));
    const pid_t ranks[] = {Rank(process.pid(), 0), Rank(process.pid(), 1)};
    int64_t step = 20;
    for (const int server : {0, 1, static_cast<int>(random() % 2)}) {
      // Some of them before the training has gone on, and all of them long
      // before its end.
      step += 10 * static_cast<int64_t>(random() % 3);
      REQUIRE(process.WaitFor(fmt::format("\"step\":{},", step)));
      const pid_t pid = Server(process.pid(), server);
      REQUIRE(pid > 0);
      kill(pid, SIGKILL);
      testing::AwaitTrue([&] {
        const pid_t now = Server(process.pid(), server);
        return now > 0 && now != pid;
      });
      CHECK(Rank(process.pid(), 0) == ranks[0]);
      CHECK(Rank(process.pid(), 1) == ranks[1]);
    }
    CHECK(process.Wait() == 0);
    CAPTURE(process.err());
    CHECK(Contains(process.err(), "(restart 3 of 3)"));
    CHECK(process.err().find("starting the job") == std::string::npos);
    CHECK(SavedStep(folder / consistency) == 400);
    CHECK(NewestTensors(folder / consistency).at("global_step").At(0) == 400);
    if (consistency == std::string("sync")) {
      CheckSame(folder / "sync", folder / "ring");
    }
  }
}

// What it was told to do before, and has not read, it does not do after.
TEST_CASE("a server that stands still for long is one that comes back") {
  TemporaryFolder folder;
  const auto flags = [&](const std::string& log) -> Words {
    return {"--log-dir", folder / log,     "--epochs", "40",
            "--json",    "--log-every",    "1",        "--save-every",
            "7",         "--peer-timeout", "2",        "--threads",
            "1",         "--deterministic"};
  };
  Train(2, 0, flags("ring"));
  for (const char* consistency : {"sync", "async"}) {
    CAPTURE(consistency);
    Words more = flags(consistency);
    more.insert(more.end(), {"--consistency", consistency});
    Words words = Job(2, 2, more);
    words.insert(words.begin(), {"--max-restarts", "1"});
    const Process process(kLauncher, words);
    REQUIRE(process.WaitFor("\"step\":20,"));
    const pid_t pid = Server(process.pid(), 1);
    REQUIRE(pid > 0);
    kill(pid, SIGSTOP);
    testing::AwaitTrue(
        [&] { return Contains(process.err(), "it is waited for"); });
    kill(pid, SIGCONT);
    CHECK(process.Wait() == 0);
    CAPTURE(process.err());
    CHECK(process.err().find("(restart") == std::string::npos);
    CHECK(SavedStep(folder / consistency) == 400);
    CHECK(NewestTensors(folder / consistency).at("global_step").At(0) == 400);
    if (consistency == std::string("sync")) {
      CheckSame(folder / "sync", folder / "ring");
    }
  }
}

TEST_CASE("what does not go together is one line") {
  const auto refused = [](const Outcome& outcome, int code,
                          const std::string& part) {
    CAPTURE(outcome.err);
    CHECK(outcome.code == code);
    CHECK(Contains(outcome.err, part));
  };
  const auto alone = [](const Words& more) {
    return testing::RunMnist(OnMnist("train", more));
  };
  testing::CheckMnistError(alone({"--strategy", "ps"}), 1,
                           "there are no parameter servers");
  testing::CheckMnistError(alone({"--consistency", "async"}), 2,
                           "--consistency is of --strategy ps");
  for (const char* text : {"ssp:-1", "ssp", "eventual", "ssp:x"}) {
    testing::CheckMnistError(
        alone({"--strategy", "ps", "--consistency", text}), 2,
        fmt::format("--consistency {}: wanted sync, async or ssp:S", text));
  }
  testing::CheckMnistError(alone({"--strategy", "ps", "--backup-workers", "0",
                                  "--virtual-workers", "2"}),
                           2,
                           "--virtual-workers is for processes that do each");
  testing::CheckMnistError(alone({"--strategy", "ps", "--consistency", "async",
                                  "--sync-batch-norm"}),
                           2,
                           "--sync-batch-norm is for processes that do each");
  testing::CheckMnistError(
      alone({"--strategy", "ps", "--consistency", "ssp:2",
             "--compress-gradients", "bf16"}),
      2, "--compress-gradients is for processes that do each");
  refused(RunJob(2, 1, {"--strategy", "ring"}), 2, "--strategy");
  Words ring = {"-n", "2", "--ps", "1", testing::kMnist};
  for (const std::string& word : OnMnist("train", {})) ring.push_back(word);
  refused(testing::RunProgram(kLauncher, ring), 1,
          "which only --strategy ps uses");
  refused(testing::RunProgram(kLauncher, {"-n", "1", "--ps", "0", "true"}), 2,
          "--ps");
  refused(RunJob(2, 1, {"--consistency", "async", "--accumulate", "2"}), 1,
          "gradient accumulation is for workers that do each step together");
  refused(RunJob(2, 1, {"--consistency", "async", "--precision", "fp16"}), 1,
          "loss scaling (fp16)");
  refused(RunJob(1, 1, {"--variables", "gpu"}), 1, "/job:ps/task:0/gpu:0");
}

TEST_CASE("a server that ends by itself has failed") {
  // Workers that wait for it, in the shell's words.
  const Outcome outcome = testing::RunProgram(
      kLauncher, {"-n", "1", "--ps", "2", "/bin/sh", "-c",
                  "test \"$SLUICE_SERVER\" = 1 && exit 0; sleep 60"});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.err, "parameter server 1 ended with code 0"));
}

TEST_CASE("processes and servers are told who they are") {
  TemporaryFolder folder;
  // The servers end with the last rank: those wait for what they say.
  const std::string script =
      "env | grep -e ^SLUICE_S -e ^SLUICE_RANK | sort; "
      "test -n \"$SLUICE_RANK\" || sleep 60; "
      "for i in 0 1; do until grep -q SLUICE_SIZE \"$1/ps-$i.out\"; "
      "do sleep 0.05; done; done";
  const Outcome outcome = testing::RunProgram(
      kLauncher, {"-n", "2", "--ps", "2", "--output-dir", folder / "out",
                  "/bin/sh", "-c", script, "sh", folder / "out"});
  CHECK(outcome.code == 0);
  const auto text = [&](const std::string& name) {
    return testing::TextOf(folder / ("out/" + name + ".out"));
  };
  for (int i = 0; i < 2; ++i) {
    const std::string rank = text(fmt::format("rank-{}", i));
    CHECK(Contains(rank, fmt::format("SLUICE_RANK={}", i)));
    CHECK(Contains(rank, "SLUICE_SERVERS=127.0.0.1:"));
    CHECK(rank.find("SLUICE_SERVER=") == std::string::npos);
    const std::string server = text(fmt::format("ps-{}", i));
    CHECK(Contains(server, fmt::format("SLUICE_SERVER={}", i)));
    CHECK(server.find("SLUICE_RANK") == std::string::npos);
    CHECK(Contains(server, "SLUICE_SIZE=2"));
  }
}

// Real digits; the synthetic ones above are learnt by anything.
TEST_CASE("processes with their own speeds learn MNIST as well as one") {
  const auto data = testing::RealData("mnist");
  if (!data) return;
  for (const char* consistency : {"async", "ssp:3"}) {
    const Outcome outcome = testing::RunProgram(
        kLauncher,
        {"-n", "3", "--ps", "1", testing::kMnist, "train", "--data-dir", *data,
         "--model", "mlp", "--epochs", "2", "--json", "--strategy", "ps",
         "--consistency", consistency});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const size_t at = outcome.out.find("\"test_accuracy\":");
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(outcome.out.substr(at + 16)) > 0.93);
  }
}

}  // namespace
}  // namespace sluice
