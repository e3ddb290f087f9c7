// Programs with --virtual-workers: the bits of one process.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <string>
#include <vector>

#include "engine/cpu_features.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/resnet50_program.h"

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

std::vector<std::string> OnVirtual(const std::string& log_dir,
                                   std::vector<std::string> more) {
  more.insert(more.end(), {"--batch-size", "50", "--virtual-workers", "4"});
  return testing::OnNetwork(log_dir, more);
}

Outcome Train(int size, const std::string& log_dir,
              const std::vector<std::string>& more) {
  return testing::RunProgram(
      kLauncher, Launched(size, testing::kMnist, OnVirtual(log_dir, more)));
}

TEST_CASE("virtual workers: any number of processes leaves the same bits") {
  TemporaryFolder folder;
  for (const int size : {1, 2, 3, 4}) {
    const std::string log = folder / std::to_string(size);
    const Outcome outcome = Train(size, log, {"--steps", "8"});
    CAPTURE(size);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(Contains(outcome.out, fmt::format("\"workers\":{}", size)));
    CHECK(Contains(outcome.out, "\"virtual_workers\":4"));
    CheckSameTensors(NewestTensors(log), NewestTensors(folder / "1"));
  }
  // Two would not.
  const Outcome two = RunMnist(
      OnMnist("train",
              {"--log-dir", folder / "two", "--batch-size", "50",
               "--deterministic", "--virtual-workers", "2", "--steps", "8"},
              "cnn"));
  CAPTURE(two.err);
  REQUIRE(two.code == 0);
  CHECK(!NewestTensors(folder / "two")
             .at("fc1/weights")
             .BitEqual(NewestTensors(folder / "1").at("fc1/weights")));
}

TEST_CASE("virtual workers: a job that is killed goes on with other numbers") {
  TemporaryFolder folder;
  const std::string log = folder / "parts", whole = folder / "whole";
  // More steps than are done, however late it is killed.
  std::vector<std::string> flags = {
      "--steps", "1000000", "--save-every", "5", "--evaluate-every", "0"};
  const Process process(kLauncher,
                        Launched(2, testing::kMnist, OnVirtual(log, flags)));
  REQUIRE(process.WaitFor("\"step\":17,"));
  testing::KillRank(process.pid(), 1, SIGKILL);
  CHECK(process.Wait() != 0);
  const std::string last = std::to_string(testing::SavedStep(log) + 23);
  // The record has what else is said.
  const Outcome rest = testing::RunProgram(
      kLauncher,
      Launched(
          3, testing::kMnist,
          OnMnist("train", {"--log-dir", log, "--max-steps", last}, "cnn")));
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(Contains(rest.err, "resuming from step"));
  flags.insert(flags.end(), {"--max-steps", last});
  REQUIRE(Train(1, whole, flags).code == 0);
  CheckSameTensors(NewestTensors(log), NewestTensors(whole));
  const Outcome other = RunMnist(
      OnMnist("train", {"--log-dir", log, "--virtual-workers", "2"}, "cnn"));
  CheckMnistError(other, 1,
                  "was trained with 4 virtual workers, now there are 2");
}

#if SLUICE_HAVE_PNG
// Batch normalisation, and pictures mixed within a share.
TEST_CASE("virtual workers: statistics and mixed pictures") {
  TemporaryFolder folder;
  const std::string data = folder / "data";
  testing::WriteClasses(data + "/train", {"ant", "bee", "cat"}, 9);
  testing::WriteClasses(data + "/val", {"ant", "bee", "cat"}, 3);
  for (const int size : {1, 3}) {
    const std::string log = folder / std::to_string(size);
    const Outcome outcome = testing::RunProgram(
        kLauncher, Launched(size, SLUICE_BIN_DIR "/resnet50",
                            {"train", "--data", data, "--model", "resnet20",
                             "--batch-size", "12", "--steps", "4", "--augment",
                             "mixup(0.4)", "--deterministic",
                             "--virtual-workers", "4", "--log-dir", log}));
    CAPTURE(size);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CheckSameTensors(NewestTensors(log), NewestTensors(folder / "1"));
  }
}
#endif

// Kernels go by SLUICE_ISA, and so must what compares them.
TEST_CASE("virtual workers: processes of other instruction sets are refused") {
  const auto train = [](const std::string& which) {
    std::string line = which + " export SLUICE_ISA=baseline; exec " +
                       std::string(testing::kMnist);
    for (const std::string& word :
         OnMnist("train", {"--virtual-workers", "2", "--steps", "2"})) {
      line += " '" + word + "'";
    }
    return testing::RunJob(2, line);
  };
  const Outcome one = train("[ $SLUICE_RANK = 0 ] ||");
  CAPTURE(one.err);
  if (ChosenIsa() == "baseline") {
    CHECK(one.code == 0);
  } else {
    CHECK(one.code == 1);
    CHECK(Contains(one.err, "the instruction set (SLUICE_ISA) of rank 1 of 2"));
  }
  CHECK(train("").code == 0);
}

TEST_CASE("virtual workers: what does not go with them is one line") {
  const auto refused = [](const std::vector<std::string>& more, int code,
                          const std::string& part) {
    CheckMnistError(RunMnist(OnMnist("train", more)), code, part);
  };
  refused({"--virtual-workers", "6"}, 2, "wanted a power of two");
  refused({"--virtual-workers", "0"}, 2, "wanted a power of two");
  refused({"--virtual-workers", "4x"}, 2, "wanted a power of two");
  refused({"--virtual-workers", "2", "--sync-batch-norm"}, 2,
          "--sync-batch-norm");
  refused({"--virtual-workers", "2", "--overlap", "on"}, 2, "--overlap on");
  refused({"--virtual-workers", "2", "--batch-size", "1"}, 1, "batches of 1");
  const Outcome few = testing::RunProgram(
      kLauncher, Launched(3, testing::kMnist,
                          OnMnist("train", {"--virtual-workers", "2"})));
  CAPTURE(few.err);
  CHECK(few.code == 1);
  CHECK(Contains(few.err, "2 virtual workers for 3 processes"));
}

}  // namespace
}  // namespace sluice
