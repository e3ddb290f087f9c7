// Flags beside --optimizer of a program that has a rate and a decay of its own:
// --scale-learning-rate where the rate goes by the batch size anyway, and a
// decay of 0.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/newest_tensors.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::CheckSameTensors;
using testing::NewestTensors;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

void Train(const std::string& log_dir, const Words& more) {
  Words words = {"train",   "--log-dir",       log_dir,
                 "--model", "resnet20",        "--steps",
                 "2",       "--deterministic", "--virtual-workers",
                 "2"};
  words.insert(words.end(), more.begin(), more.end());
  const testing::Outcome outcome = testing::RunResNet50(words);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
}

TEST_CASE("the rate of a job's batch is not scaled once more") {
  const TemporaryFolder folder;
  Train(folder / "job", {"--batch-size", "8"});
  Train(folder / "each",
        {"--batch-size-per-worker", "4", "--scale-learning-rate", "linear"});
  CheckSameTensors(NewestTensors(folder / "job"),
                   NewestTensors(folder / "each"));
  // What is given goes by nothing.
  Train(folder / "given", {"--batch-size", "8", "--learning-rate", "0.25"});
  Train(folder / "scaled", {"--batch-size-per-worker", "4", "--learning-rate",
                            "0.125", "--scale-learning-rate", "linear"});
  CheckSameTensors(NewestTensors(folder / "given"),
                   NewestTensors(folder / "scaled"));
  // Nor does another optimizer's own, which is 0.01.
  Train(folder / "own", {"--batch-size", "8", "--optimizer", "momentum",
                         "--learning-rate", "0.02"});
  Train(folder / "own scaled", {"--batch-size-per-worker", "4", "--optimizer",
                                "momentum", "--scale-learning-rate", "linear"});
  CheckSameTensors(NewestTensors(folder / "own"),
                   NewestTensors(folder / "own scaled"));
}

TEST_CASE("a decay of 0 is that of optimizers that have one of their own") {
  const TemporaryFolder folder;
  Train(folder / "adam",
        {"--batch-size", "8", "--optimizer", "adam", "--weight-decay", "0"});
  Train(folder / "adamw",
        {"--batch-size", "8", "--optimizer", "adamw", "--weight-decay", "0"});
  CheckSameTensors(NewestTensors(folder / "adam"),
                   NewestTensors(folder / "adamw"));
}

}  // namespace
}  // namespace sluice
