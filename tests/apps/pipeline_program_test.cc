// Programs whose model is cut into stages over processes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"

namespace sluice {
namespace {

using testing::CheckMnistError;
using testing::CheckSameTensors;
using testing::Contains;
using testing::kLauncher;
using testing::Launched;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::TemporaryFolder;

// With batches that all of them can share.
std::vector<std::string> OnBatches(const std::string& log_dir,
                                   std::vector<std::string> more) {
  more.insert(more.end(), {"--batch-size", "48"});
  return testing::OnNetwork(log_dir, more);
}

std::vector<std::string> Stages(int stages, int micro_batches,
                                std::vector<std::string> more) {
  for (const std::string& flag :
       {std::string("--pipeline-stages"), std::to_string(stages),
        std::string("--micro-batches"), std::to_string(micro_batches)}) {
    more.push_back(flag);
  }
  return more;
}

Outcome Train(int size, const std::string& log_dir,
              const std::vector<std::string>& more) {
  return testing::RunProgram(
      kLauncher, Launched(size, testing::kMnist, OnBatches(log_dir, more)));
}

TEST_CASE("pipelines: 2 stages x 2 replicas leave the bits of one process") {
  TemporaryFolder folder;
  const Outcome one = RunMnist(
      OnBatches(folder / "one", {"--steps", "8", "--virtual-workers", "8"}));
  CAPTURE(one.err);
  REQUIRE(one.code == 0);
  const std::vector<std::string> steps = {"--steps", "8"};
  for (const auto& [size, flags] :
       {std::pair{4, Stages(2, 4, steps)},
        {3, Stages(3, 8, steps)},
        {2,
         std::vector<std::string>{"--steps", "8", "--micro-batches", "4"}}}) {
    const std::string log = folder / std::to_string(size);
    const Outcome outcome = Train(size, log, flags);
    CAPTURE(size);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CheckSameTensors(NewestTensors(log), NewestTensors(folder / "one"));
    if (size == 2) continue;
    CHECK(Contains(outcome.err, "pipeline of"));
    CHECK(Contains(outcome.out,
                   fmt::format("\"pipeline_stages\":{}", size == 4 ? 2 : 3)));
  }
  const Outcome evaluated =
      RunMnist(OnMnist("eval", {"--log-dir", folder / "4", "--json"}, "cnn"));
  CAPTURE(evaluated.err);
  CHECK(evaluated.code == 0);
}

TEST_CASE("pipelines: a job that is killed goes on with other stages") {
  TemporaryFolder folder;
  const std::string log = folder / "parts", whole = folder / "whole";
  // More steps than are done, however late it is killed.
  std::vector<std::string> flags = {
      "--steps", "1000000", "--save-every", "5", "--evaluate-every", "0"};
  const Process process(
      kLauncher,
      Launched(2, testing::kMnist, OnBatches(log, Stages(2, 4, flags))));
  REQUIRE(process.WaitFor("\"step\":17,"));
  testing::KillRank(process.pid(), 1, SIGKILL);
  CHECK(process.Wait() != 0);
  flags.insert(flags.end(),
               {"--max-steps", std::to_string(testing::SavedStep(log) + 23)});
  const Outcome rest = Train(4, log, Stages(4, 4, flags));
  CAPTURE(rest.err);
  REQUIRE(rest.code == 0);
  REQUIRE(Train(1, whole, Stages(1, 4, flags)).code == 0);
  CheckSameTensors(NewestTensors(log), NewestTensors(whole));
}

TEST_CASE("pipelines: flags that make no sense") {
  const auto error = [](const std::vector<std::string>& flags,
                        const std::string& said) {
    CAPTURE(said);
    CheckMnistError(RunMnist(OnMnist("train", flags, "softmax")), 2, said);
  };
  CheckMnistError(
      RunMnist(OnMnist("train", {"--pipeline-stages", "2"}, "softmax")), 1,
      "there is 1 process; wanted 2");
  error({"--pipeline-stages", "4", "--micro-batches", "2"},
        "fewer than the 4 stages");
  error({"--micro-batches", "3"}, "wanted a power of two");
  error({"--micro-batches", "4", "--virtual-workers", "4"}, "excludes");
  error({"--pipeline-stages", "2", "--virtual-workers", "4"},
        "say --micro-batches");
  error({"--pipeline-stages", "2", "--strategy", "ps"},
        "not for --strategy ps");
  error({"--pipeline-stages", "2", "--overlap", "on"}, "--overlap on");
  error({"--micro-batches", "2", "--batch-size-per-worker", "4"},
        "give --batch-size");
  const Outcome three = testing::RunProgram(
      kLauncher,
      Launched(3, testing::kMnist,
               OnMnist("train", {"--pipeline-stages", "2"}, "softmax")));
  CHECK(three.code == 1);
  CHECK(Contains(three.err, "there are 3 processes"));
}

}  // namespace
}  // namespace sluice
