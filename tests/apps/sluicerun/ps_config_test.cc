// Parameter servers of SLUICE_CONFIG, which nobody ends: they do when the
// training has, or cannot.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "tests/support/config_jobs.h"
#include "tests/support/error_text.h"
#include "tests/support/newest_tensors.h"

namespace sluice {
namespace {

using testing::CheckSameTensors;
using testing::Contains;
using testing::Joined;
using testing::kLauncher;
using testing::NewestTensors;
using testing::Outcome;
using testing::Process;
using testing::TemporaryFolder;
using testing::Words;

std::string Addresses(const std::string& host, const std::vector<int>& ports,
                      size_t begin, size_t end) {
  std::string list;
  for (size_t i = begin; i < end; ++i) {
    list += fmt::format("{}\"{}:{}\"", i == begin ? "" : ", ", host, ports[i]);
  }
  return list;
}

// So many workers and servers of this machine, of which none has begun.
class ConfigJob {
 public:
  ConfigJob(int workers, int servers, const Words& flags)
      : workers_(workers), servers_(servers), flags_(flags) {}

  std::unique_ptr<Process> Start(const std::string& job, int index) const {
    const auto workers = static_cast<size_t>(workers_);
    const std::string config = fmt::format(
        R"({{"cluster": {{"worker": [{}], "ps": [{}]}},
             "task": {{"type": "{}", "index": {}}}}})",
        Addresses(host, ports_, 0, workers),
        Addresses(host, ports_, workers, ports_.size()), job, index);
    return testing::TrainWithVariables(
        Joined(Joined(secrets, {"SLUICE_CONFIG=" + config}), shell),
        Joined({"--strategy", strategy}, flags_));
  }
  std::unique_ptr<Process> Worker(int rank) const {
    return Start("worker", rank);
  }
  std::unique_ptr<Process> Server(int index) const {
    return Start("ps", index);
  }
  // Once the server listens.
  dist::Socket Reach(int server) const {
    return dist::Socket::Connect("127.0.0.1",
                                 ports_[static_cast<size_t>(workers_ + server)],
                                 dist::After(std::chrono::seconds(60)))
        .ValueOrThrow();
  }
  // All of them, in a random order and not all at once.
  std::vector<std::unique_ptr<Process>> StartAll(std::mt19937& random) const {
    std::vector<int> order(ports_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::unique_ptr<Process>> all(order.size());
    for (const int i : order) {
      all[static_cast<size_t>(i)] =
          i < workers_ ? Worker(i) : Server(i - workers_);
      if (random() % 2 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
      }
    }
    return all;
  }

 private:
  const TemporaryFolder folder_;

 public:
  Words secrets = {"SLUICE_TOKEN_FILE=" + testing::TokenFile(folder_)};
  std::string strategy = "ps";
  std::string host = "127.0.0.1";
  Words shell;  // whose "$@" is what is started; empty: none

 private:
  const int workers_, servers_;
  const Words flags_;
  const std::vector<int> ports_ =
      testing::FreePorts(static_cast<size_t>(workers_ + servers_));
};

void CheckEndWell(const std::vector<std::unique_ptr<Process>>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    const int code = all[i]->Wait();
    CAPTURE(i);
    CAPTURE(all[i]->err());
    CHECK(code == 0);
  }
}

Words Flags(const std::string& log_dir, const Words& more, int epochs = 2) {
  return Joined({"--log-dir", log_dir, "--epochs", std::to_string(epochs),
                 "--deterministic"},
                more);
}

// As the launcher's ring trains it.
testing::TensorsByName Ring(int workers, int epochs = 2) {
  const TemporaryFolder folder;
  const Outcome outcome = testing::RunProgram(
      kLauncher,
      Joined({"-n", std::to_string(workers), testing::kMnist},
             testing::OnMnist(
                 "train", Flags(folder / "log", {"--threads", "1"}, epochs))));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return NewestTensors(folder / "log");
}

TEST_CASE("servers of SLUICE_CONFIG train what a ring does, and end with it") {
  std::mt19937 random(3);
  for (const int workers : {1, 2}) {
    const testing::TensorsByName ring = Ring(workers);
    for (const int servers : {1, 2, 3}) {
      CAPTURE(workers);
      CAPTURE(servers);
      const TemporaryFolder folder;
      ConfigJob job(workers, servers, Flags(folder / "log", {}));
      if (servers == 2) job.host = "localhost";
      CheckEndWell(job.StartAll(random));
      CheckSameTensors(NewestTensors(folder / "log"), ring);
    }
  }
}

// Wherever in the list that host is.
TEST_CASE("a server's name that is no other host's way to it is refused") {
  const TemporaryFolder folder;
  for (const auto& [workers, servers] :
       {std::pair(R"("127.0.0.1:1")", R"("localhost:2")"),
        std::pair(R"("localhost:1", "127.0.0.1:2")", R"("localhost:3")"),
        std::pair(R"("localhost:1")", R"("localhost:2", "127.0.0.1:3")")}) {
    CAPTURE(workers);
    const std::string config = fmt::format(
        R"({{"cluster": {{"worker": [{}], "ps": [{}]}},
             "task": {{"type": "ps", "index": 0}}}})",
        workers, servers);
    const auto server = testing::TrainWithVariables(
        {"SLUICE_CONFIG=" + config,
         "SLUICE_TOKEN_FILE=" + testing::TokenFile(folder)},
        {"--strategy", "ps"});
    CHECK(server->Wait() == 1);
    CHECK(Contains(server->err(), "'localhost' is "));
  }
}

TEST_CASE("workers at their own speeds, encrypted") {
  if (!dist::HasTls()) return;
  std::mt19937 random(4);
  const TemporaryFolder folder;
  REQUIRE(testing::RunProgram(kLauncher,
                              {"-n", "2", "--ps", "2", "--make-certificates",
                               folder / "certificates"})
              .code == 0);
  ConfigJob job(2, 2, Flags(folder / "log", {"--consistency", "async"}));
  job.secrets = {"SLUICE_CERTIFICATES=" + (folder / "certificates")};
  CheckEndWell(job.StartAll(random));
  CHECK(NewestTensors(folder / "log").at("global_step").At(0) == 20);
}

TEST_CASE("whoever is killed, all end, and servers say who is gone") {
  std::mt19937 random(5);
  for (const char* consistency : {"sync", "async"}) {
    for (const size_t victim : {0, 1, 2}) {
      CAPTURE(consistency);
      CAPTURE(victim);
      const TemporaryFolder folder;
      const ConfigJob job(
          2, 2,
          {"--log-dir", folder / "log", "--epochs", "100000",
           "--evaluate-every", "0", "--peer-timeout", "3", "--json",
           "--log-every", "2", "--consistency", consistency});
      const auto all = job.StartAll(random);
      REQUIRE(all[0]->WaitFor("\"step\":20,"));
      kill(all[victim]->pid(), SIGKILL);
      for (size_t i = 0; i < all.size(); ++i) {
        const int code = all[i]->Wait();
        CAPTURE(i);
        const std::string err = all[i]->err();
        CAPTURE(err);
        CHECK(code != 0);
        if (i < 2 || i == victim) continue;
        CHECK(code == 1);
        CHECK(testing::Lines(err) == 1);
        // Where a server has died both workers soon go.
        CHECK(Contains(err, victim == 2
                                ? "of 2 is gone, and the training"
                                : fmt::format("rank {} of 2 is gone, and the "
                                              "training had not ended",
                                              victim)));
      }
    }
  }
}

// Servers as well: who starts again what has not ended with 0 starts all.
TEST_CASE("a signal to a worker saves, and what all are started for goes on") {
  constexpr int kEpochs = 60;
  std::mt19937 random(6);
  const TemporaryFolder folder;
  const ConfigJob job(
      2, 2,
      Flags(folder / "log",
            {"--evaluate-every", "0", "--json", "--log-every", "2"}, kEpochs));
  {
    const auto all = job.StartAll(random);
    REQUIRE(all[0]->WaitFor("\"step\":20,"));
    kill(all[1]->pid(), SIGTERM);
    for (size_t i = 0; i < all.size(); ++i) {
      const int code = all[i]->Wait();
      CAPTURE(i);
      const std::string err = all[i]->err();
      CAPTURE(err);
      CHECK(code == (i < 2 ? 128 + SIGTERM : 1));
      if (i < 2) continue;
      CHECK(testing::Lines(err) == 1);
      CHECK(Contains(err, "is gone, and the training had not ended"));
    }
  }
  CHECK(NewestTensors(folder / "log").at("global_step").At(0) < 10 * kEpochs);
  CheckEndWell(job.StartAll(random));
  CheckSameTensors(NewestTensors(folder / "log"), Ring(2, kEpochs));
}

TEST_CASE("servers that somebody starts again are waited for") {
  std::mt19937 random(7);
  for (const char* consistency : {"sync", "async"}) {
    CAPTURE(consistency);
    const TemporaryFolder folder;
    ConfigJob job(
        2, 2,
        {"--log-dir", folder / "log", "--epochs", "30", "--json", "--log-every",
         "1", "--save-every", "7", "--consistency", consistency});
    job.secrets.emplace_back("SLUICE_SERVERS_RETURN=1");
    auto all = job.StartAll(random);
    for (const int step : {20, 80}) {
      REQUIRE(all[0]->WaitFor(fmt::format("\"step\":{},", step)));
      const auto server = static_cast<int>(random() % 2);
      kill(all[static_cast<size_t>(2 + server)]->pid(), SIGKILL);
      CHECK(all[static_cast<size_t>(2 + server)]->Wait() != 0);
      all[static_cast<size_t>(2 + server)] = job.Server(server);
    }
    CheckEndWell(all);
    CHECK(NewestTensors(folder / "log").at("global_step").At(0) == 300);
  }
}

// Servers live on where they may return: all workers anew are another training
// to them.
TEST_CASE("workers that are started again go on with the same servers") {
  std::mt19937 random(8);
  const TemporaryFolder folder;
  ConfigJob job(
      2, 1,
      {"--log-dir", folder / "log", "--epochs", "60", "--json", "--log-every",
       "1", "--save-every", "7", "--consistency", "ssp:1"});
  job.secrets.emplace_back("SLUICE_SERVERS_RETURN=1");
  auto all = job.StartAll(random);
  REQUIRE(all[0]->WaitFor("\"step\":40,"));
  kill(all[random() % 2]->pid(), SIGKILL);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(all[static_cast<size_t>(rank)]->Wait() != 0);
    all[static_cast<size_t>(rank)] = job.Worker(rank);
  }
  CheckEndWell(all);
  CHECK(NewestTensors(folder / "log").at("global_step").At(0) == 600);
}

TEST_CASE("a server that is told to end says by its code that it was") {
  const TemporaryFolder folder;
  const ConfigJob job(1, 1, Flags(folder / "log", {}, 1));
  const auto server = job.Server(0);
  (void)job.Reach(0);
  server->Kill(SIGTERM);
  CHECK(server->Wait() == 128 + SIGTERM);
}

TEST_CASE("nohup: a closed terminal does not matter to a server") {
  const TemporaryFolder folder;
  ConfigJob job(1, 1, Flags(folder / "log", {"--join-timeout", "20"}, 1));
  job.shell = {"/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh"};
  const auto server = job.Server(0);
  job.shell.clear();
  (void)job.Reach(0);
  server->Kill(SIGHUP);
  const auto worker = job.Worker(0);
  CAPTURE(server->err());
  CHECK(worker->Wait() == 0);
  CHECK(server->Wait() == 0);
  CHECK(NewestTensors(folder / "log").at("global_step").At(0) == 10);
}

TEST_CASE("a server has a line to say that nobody reads, and goes on") {
  const TemporaryFolder folder;
  ConfigJob job(1, 1, Flags(folder / "log", {"--join-timeout", "20"}, 1));
  // The pipe's reader goes at once.
  job.shell = {
      "/bin/sh", "-c",
      fmt::format("mkfifo {0}; : < {0} & exec \"$@\" 2> {0}", folder / "pipe"),
      "sh"};
  const auto server = job.Server(0);
  job.shell.clear();
  dist::Socket stranger = job.Reach(0);
  const dist::Deadline soon = dist::After(std::chrono::seconds(60));
  std::vector<std::byte> bytes(5000, std::byte{7});
  ThrowIfError(stranger.Send(dist::Bytes(bytes), soon));
  // Refused, which it says first.
  CHECK_FALSE(stranger.Receive(dist::MutableBytes(bytes), soon).ok());
  const auto worker = job.Worker(0);
  CHECK(worker->Wait() == 0);
  CHECK(server->Wait() == 0);
  CHECK(NewestTensors(folder / "log").at("global_step").At(0) == 10);
}

TEST_CASE("who waits for whom at servers is one line, and has a limit") {
  ConfigJob job(2, 1, {"--epochs", "1", "--join-timeout", "0.3"});
  const auto server = job.Server(0);
  CHECK(server->Wait() == 1);
  CHECK(Contains(server->err(), "ranks 0, 1 of 2 did not come"));
  CHECK(testing::Lines(server->err()) == 1);
  const auto worker = job.Worker(1);
  CHECK(worker->Wait() == 1);
  CHECK(Contains(worker->err(), "rank 1 of 2 waits for /job:ps/task:0"));
  CHECK(testing::Lines(worker->err()) == 1);
  job.strategy = "ring";
  const auto ring = job.Worker(0);
  CHECK(ring->Wait() != 0);
  CHECK(Contains(ring->err(), "only --strategy ps uses"));
}

}  // namespace
}  // namespace sluice
