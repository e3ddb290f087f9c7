// Processes that nobody's launcher has started: who they are is in their
// environment.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "dist/net/authority.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "tests/dist/collective/strangers.h"
#include "tests/support/config_jobs.h"
#include "tests/support/error_text.h"
#include "tests/support/mnist_program.h"
#include "tests/support/net_hosts.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/required.h"

namespace sluice {
namespace {

using testing::CheckSameTensors;
using testing::Contains;
using testing::FreePorts;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::TemporaryFolder;
using testing::TensorsByName;
using testing::TokenFile;
using testing::Words;

// One epoch of a training's process with these variables.
std::unique_ptr<Process> Train(const Words& variables, const Words& more) {
  return testing::TrainWithVariables(variables,
                                     testing::Joined({"--epochs", "1"}, more));
}

std::string Config(const std::vector<int>& ports, size_t task,
                   const std::string& more = "") {
  return fmt::format(
      R"({{"cluster": {{"chief": ["127.0.0.1:{}"],
                        "worker": ["127.0.0.1:{}"]}},
           "task": {{"type": "{}", "index": 0}}{}}})",
      ports[0], ports[1], task == 0 ? "chief" : "worker", more);
}

// What two processes of the launcher's train.
const TensorsByName& Launched() {
  static const TensorsByName trained = [] {
    const TemporaryFolder folder;
    Words words = {"-n", "2", testing::kMnist};
    for (const std::string& word :
         OnMnist("train", {"--epochs", "1", "--threads", "1", "--log-dir",
                           folder / "log"})) {
      words.push_back(word);
    }
    CHECK(testing::RunProgram(SLUICE_BIN_DIR "/sluicerun", words).code == 0);
    return NewestTensors(folder / "log");
  }();
  return trained;
}

void CheckTrained(const std::vector<Words>& variables) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Process>> processes;
  for (const Words& each : variables) {
    processes.push_back(Train(each, {"--log-dir", folder / "log"}));
  }
  for (const auto& process : processes) {
    const int code = process->Wait();
    CAPTURE(process->err());
    CHECK(code == 0);
  }
  CheckSameTensors(NewestTensors(folder / "log"), Launched());
}

TEST_CASE("processes of TF_CONFIG train what the launcher's train") {
  const TemporaryFolder folder;
  const std::string token = "SLUICE_TOKEN_FILE=" + TokenFile(folder);
  const std::vector<int> ports = FreePorts(2);
  CheckTrained({{"TF_CONFIG=" + Config(ports, 0), token},
                {"TF_CONFIG=" + Config(ports, 1), token}});
}

// Variables of two processes with certificates in the folder.
std::vector<Words> Certified(const TemporaryFolder& folder,
                             const dist::Authority& authority,
                             const std::vector<int>& ports) {
  std::vector<Words> variables;
  for (const int rank : {0, 1}) {
    const auto own =
        authority.Issue("worker", rank, std::chrono::hours(1)).ValueOrThrow();
    const std::string at = folder / std::to_string(rank);
    std::ofstream(at + ".ca") << own.authority;
    std::ofstream(at + ".pem") << own.certificate;
    std::ofstream(at + ".key") << own.key;
    chmod((at + ".key").c_str(), 0600);
    variables.push_back(
        {"SLUICE_CONFIG=" +
         Config(ports, static_cast<size_t>(rank),
                fmt::format(R"(, "credentials": {{"ca": "{0}.ca",
                               "certificate": "{0}.pem", "key": "{0}.key"}})",
                            at))});
  }
  return variables;
}

TEST_CASE("processes of SLUICE_CONFIG bring certificates of their own") {
  if (!dist::HasTls()) return;
  const TemporaryFolder folder;
  const auto authority = dist::Authority::Create("job").ValueOrThrow();
  std::vector<Words> variables = Certified(folder, authority, FreePorts(2));
  CheckTrained(variables);
  // The other's are not its own.
  std::string& text = variables[1][0];
  for (size_t at = 0;
       (at = text.find(folder / "1", at)) != std::string::npos;) {
    text.replace(at, (folder / "1").size(), folder / "0");
  }
  const auto wrong = Train(variables[1], {});
  CHECK(wrong->Wait() != 0);
  CHECK(Contains(wrong->err(), "this is rank 1, its certificate worker 0's"));
}

TEST_CASE("strangers at both ports change no bit of a training, nor its end") {
  if (!dist::HasTls()) return;
  const TemporaryFolder folder;
  const auto authority = dist::Authority::Create("job").ValueOrThrow();
  const std::vector<int> ports = FreePorts(2);
  (void)Launched();
  const dist::testing::Strangers first(ports[0], authority, 2, "", 4);
  const dist::testing::Strangers second(ports[1], authority, 2, "", 4);
  // Some of them take their time, and a training is short: until enough came.
  for (int run = 0; run < 3 || (run < 60 && first.knocks() <= 10); ++run) {
    CheckTrained(Certified(folder, authority, ports));
  }
  CHECK(first.knocks() > 10);
  CHECK(first.let_in() == 0);
  CHECK(second.let_in() == 0);
}

TEST_CASE("who waits for whom is one line, and the end of it a limit") {
  const TemporaryFolder folder;
  const std::string token = "SLUICE_TOKEN_FILE=" + TokenFile(folder);
  const std::vector<int> ports = FreePorts(2);
  for (const size_t task : {size_t{0}, size_t{1}}) {
    const auto process = Train({"TF_CONFIG=" + Config(ports, task), token},
                               {"--join-timeout", "0.2"});
    CHECK(process->Wait() != 0);
    CHECK(Contains(process->err(),
                   task == 0
                       ? std::string("rank 0 of 2 waits for rank 1 (")
                       : fmt::format("rank 1 of 2 waits for rank 0 of 2 at "
                                     "127.0.0.1:{} (",
                                     ports[0])));
    CHECK(testing::Lines(process->err()) == 1);
  }
}

TEST_CASE("without secrets nobody is let in, and beyond this host nothing is") {
  const TemporaryFolder folder;
  const std::vector<int> ports = FreePorts(2);
  const auto bare = Train({"TF_CONFIG=" + Config(ports, 0)}, {});
  CHECK(bare->Wait() != 0);
  CHECK(Contains(bare->err(), "set SLUICE_CERTIFICATES"));
  const std::string all = fmt::format(
      R"({{"cluster": {{"worker": ["0.0.0.0:{}", "127.0.0.1:{}"]}},
           "task": {{"type": "worker", "index": 0}}}})",
      ports[0], ports[1]);
  const Words variables = {"TF_CONFIG=" + all,
                           "SLUICE_TOKEN_FILE=" + TokenFile(folder)};
  const auto open = Train(variables, {});
  CHECK(open->Wait() != 0);
  CHECK(Contains(open->err(),
                 "rank 0 is to listen at 0.0.0.0, beyond this host"));
  const auto plain =
      Train(variables, {"--allow-plaintext", "--join-timeout", "0.5"});
  CHECK(plain->Wait() != 0);
  CHECK(Contains(plain->err(), "rank 0 of 2 waits for rank 1"));
}

// By an address of this machine that is not the loopback's.
TEST_CASE("what may go in plain text may do so between stages, too") {
  constexpr int kNet = 231;
  const testing::NetHosts here(kNet, 0);
  if (!here.made()) {
    testing::SkipForHosts("no address of this machine to be made");
    return;
  }
  const TemporaryFolder folder;
  const std::string token = "SLUICE_TOKEN_FILE=" + TokenFile(folder);
  const std::vector<int> ports = FreePorts(2);
  std::vector<std::unique_ptr<Process>> processes;
  for (const int rank : {0, 1}) {
    const std::string config = fmt::format(
        R"({{"cluster": {{"worker": ["10.{0}.0.1:{1}", "10.{0}.0.1:{2}"]}},
             "task": {{"type": "worker", "index": {3}}}}})",
        kNet, ports[0], ports[1], rank);
    processes.push_back(testing::TrainWithVariables(
        {"SLUICE_CONFIG=" + config, token, "SLUICE_ALLOW_PLAINTEXT=1"},
        {"--log-dir", folder / "log", "--steps", "8", "--batch-size", "48",
         "--pipeline-stages", "2", "--micro-batches", "4"}));
  }
  for (const auto& process : processes) {
    const int code = process->Wait();
    CAPTURE(process->err());
    CHECK(code == 0);
  }
}

TEST_CASE("a process of --strategy none needs no secrets") {
  const std::vector<int> ports = FreePorts(2);
  const auto process =
      Train({"TF_CONFIG=" + Config(ports, 1)}, {"--strategy", "none"});
  CHECK(process->Wait() == 0);
}

TEST_CASE("of several processes on a host each has a GPU of its own") {
  const TemporaryFolder folder;
  const std::string token = "SLUICE_TOKEN_FILE=" + TokenFile(folder);
  for (const std::string rank : {"0", "2", "5"}) {
    const std::string local = rank == "5" ? "2" : rank;  // three on each host
    const auto process = Train(
        {"OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_RANK=" + rank,
         "OMPI_COMM_WORLD_LOCAL_SIZE=3", "OMPI_COMM_WORLD_LOCAL_RANK=" + local,
         "SLUICE_COORDINATOR=127.0.0.1:1", token},
        {"--strategy", "none", "--device", "/gpu"});
    CHECK(process->Wait() == 1);
    CHECK(Contains(process->err(), "/gpu:" + local));
  }
}

}  // namespace
}  // namespace sluice
