// --sync-batch-norm of two processes normalises as one process does.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "tests/support/launched.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Joined;
using testing::NewestTensors;
using testing::TemporaryFolder;
using testing::TensorsByName;
using testing::Words;

TensorsByName Train(const std::string& log_dir, int processes,
                    const Words& more) {
  const Words training = Joined(
      {SLUICE_BIN_DIR "/resnet50", "train", "--log-dir", log_dir, "--model",
       "resnet20", "--steps", "3", "--batch-size", "12", "--threads", "1",
       "--optimizer", "sgd", "--learning-rate", "0.01"},
      more);
  const testing::Outcome outcome = testing::RunProgram(
      testing::kLauncher, Joined({"-n", std::to_string(processes)}, training));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return NewestTensors(log_dir);
}

// The largest difference of two tensors whose names end so, as a part of the
// largest value, or of `least` where that is less.
double Apart(const TensorsByName& a, const TensorsByName& b,
             std::string_view ending = "", double least = 1e-3) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (const auto& [name, tensor] : a) {
    if (!name.ends_with(ending)) continue;
    const Tensor& other = b.at(name);
    double difference = 0, largest = least;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      difference = std::max(difference, std::abs(tensor.At(i) - other.At(i)));
      largest = std::max(largest, std::abs(tensor.At(i)));
    }
    most = std::max(most, difference / largest);
  }
  return most;
}

TEST_CASE("statistics are the job's with --sync-batch-norm, else each one's") {
  const TemporaryFolder folder;
  const TensorsByName one = Train(folder / "one", 1, {});
  const TensorsByName together =
      Train(folder / "synced", 2, {"--sync-batch-norm"});
  const TensorsByName alone = Train(folder / "apart", 2, {});
  for (const char* statistics : {"running_mean", "running_variance"}) {
    CAPTURE(statistics);
    CHECK(Apart(one, together, statistics) < 1e-3);
    CHECK(Apart(one, alone, statistics) > 1e-2);
  }
  // A ReLU whose operand is all but 0 may have another gradient, which is seen
  // in what is next to nothing after three steps.
  const double synced = Apart(one, together), apart = Apart(one, alone);
  CAPTURE(synced);
  CAPTURE(apart);
  CHECK(synced < 0.1);
  CHECK(Apart(one, together, "", /*least=*/0.05) < 5e-3);
  CHECK(apart > 10 * synced);
}

}  // namespace
}  // namespace sluice
