// How many examples a step has is what the input says, wherever it is reckoned
// with; a size that somebody asked for is not passed over.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/error_text.h"
#include "tests/support/served_training.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::kPoints;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainWith;

constexpr double kEpochs = 2;

struct Case {
  bool given;   // the size that was asked for
  int64_t own;  // the input's; 0: what it is asked for
  int workers;
  int64_t leaves;  // 0: the workers themselves
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const bool given : {false, true}) {
    for (const int64_t own : {0, 10, 25, 40, 250}) {
      for (const int workers : {1, 2, 3}) {
        for (const int64_t leaves : {0, 4}) {
          cases.push_back({given, own, workers, leaves});
        }
      }
    }
  }
  return cases;
}

TEST_CASE("all that counts examples goes by the batches that the input has") {
  for (const auto& [given, own, workers, leaves] : Cases()) {
    CAPTURE(given);
    CAPTURE(own);
    CAPTURE(workers);
    CAPTURE(leaves);
    const RunContext asked = [given = given] {
      RunContext run = ToyRun(kEpochs);
      run.batch_size_given = given;
      return run;
    }();
    const bool refused = given && own > 0 && own != asked.batch_size;
    const int64_t size = own > 0 ? own : asked.batch_size;
    const TemporaryFolder folder;
    std::atomic<int> wrong = 0, steps = 0;
    const auto want = [&](bool right) { wrong += right ? 0 : 1; };

    Task task;
    task.run = asked;
    task.spec = [&, own = own](int) {
      TrainerSpec spec = ToySpec();
      spec.input = [&, own](const RunContext& run) {
        want(run.batch_size == asked.batch_size);
        RunContext other = run;
        if (own > 0 && run.training()) other.batch_size = own;
        return testing::Points(other);
      };
      spec.model = [&](Scope& scope, const Features& in,
                       const RunContext& run) {
        want(run.batch_size == (run.training() ? size : asked.batch_size));
        return testing::Plain(scope, in, run);
      };
      spec.optimizer = [&](const RunContext& run) {
        want(run.batch_size == size);
        return optimizers::Sgd(0.1);
      };
      return spec;
    };
    task.options = [&, leaves = leaves](int) {
      TrainingOptions options;
      if (leaves > 0) options = testing::Virtual(leaves);
      options.log_dir = folder.path();
      return options;
    };
    task.after_step = [&](int, TrainingRun& run) {
      ++steps;
      const auto done = static_cast<double>(run.step() * size);
      want(run.batch_size() == size);
      want(run.context().batch_size == size);
      want(run.examples() == run.step() * size);
      want(std::abs(run.epoch() - done / kPoints) < 1e-9);
    };

    const int64_t wanted =
        (static_cast<int64_t>(kEpochs) * kPoints + size - 1) / size;
    for (const Trained& each : TrainWith(workers, task)) {
      CHECK(Contains(each.error,
                     refused ? fmt::format("batches of {}", own) : ""));
      CHECK(each.error.empty() == !refused);
      if (!refused) CHECK(each.result.steps == wanted);
    }
    CHECK(wrong == 0);
    CHECK(steps == (refused ? 0 : workers * wanted));
    const auto saved =
        CheckpointManager::ForReading(folder.path()).RestoreNewest();
    REQUIRE(saved.ok());
    REQUIRE(saved->has_value() == !refused);
    if (refused) continue;
    CHECK(Contains((**saved).checkpoint.state.dataset_position,
                   fmt::format("\"examples\":{}", wanted * size)));
  }
}

// Each takes its part of what the input has as a batch of its own.
TEST_CASE("workers with their own speeds divide the input's batches") {
  for (const int64_t own : {0, 12, 10}) {
    for (const int workers : {1, 2, 3}) {
      CAPTURE(own);
      CAPTURE(workers);
      Task task;
      task.run = ToyRun(1);
      task.run.steps = 12;
      const int64_t size = own > 0 ? own / workers : task.run.batch_size;
      const bool refused = own % workers != 0;
      task.spec = [own](int) {
        TrainerSpec spec = ToySpec();
        spec.input = [own](const RunContext& run) {
          RunContext other = run;
          if (own > 0 && run.training()) other.batch_size = own;
          return testing::Points(other);
        };
        return spec;
      };
      std::atomic<int> wrong = 0;
      task.after_step = [&](int, TrainingRun& run) {
        const auto done = static_cast<double>(run.step() * size);
        const bool right = run.batch_size() == size &&
                           run.context().batch_size == size &&
                           RowsOf(run.batch()) == size &&
                           std::abs(run.epoch() - done / kPoints) < 1e-9;
        wrong += right ? 0 : 1;
      };
      for (const Trained& each :
           testing::TrainOn(1, workers, testing::kAnyLead, task)) {
        CHECK(each.error.empty() == !refused);
        if (refused) CHECK(Contains(each.error, "batches of 10"));
        if (!refused) CHECK(each.result.steps == 12);
      }
      CHECK(wrong == 0);
    }
  }
}

// One that ends, in a smaller batch: what is counted is what came.
TEST_CASE("examples of a last, smaller batch count as what they are") {
  for (const int64_t own : {30, 60, 1000}) {
    CAPTURE(own);
    Task task;
    task.run = ToyRun(1);
    task.spec = [own](int) {
      TrainerSpec spec = ToySpec();
      spec.input = [own](const RunContext& run) {
        RunContext other = run;
        other.batch_size = own;
        return testing::PointsOnce(other);
      };
      return spec;
    };
    int64_t examples = 0;
    task.after_step = [&](int, TrainingRun& run) { examples = run.examples(); };
    const Trained trained = TrainWith(1, task)[0];
    CHECK(trained.error == "");
    CHECK(trained.result.steps == (kPoints + own - 1) / own);
    CHECK(examples == kPoints);
  }
}

}  // namespace
}  // namespace sluice
