// Several workers decide together, and fail together.
#include <doctest/doctest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <random>
#include <set>

#include "io/checkpoints/checkpoint.h"
#include "models/train/hooks/hooks.h"
#include "models/train/workers/workers.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::Contains;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainWith;

// Asked for by one worker.
class Token : public StopToken {
 public:
  std::string Reason() const override { return stop ? "enough" : ""; }
  std::atomic<bool> stop{false};
};

TEST_CASE("what one worker is told to stop for stops all, at one step") {
  std::mt19937 random(3);
  TemporaryFolder folder;
  for (int trial = 0; trial < 8; ++trial) {
    const int workers = 2 + trial % 2;
    const int told = static_cast<int>(random() % workers);
    const auto at = static_cast<int64_t>(1 + random() % 30);
    const std::string log = folder / std::to_string(trial);
    std::vector<Token> tokens(static_cast<size_t>(workers));
    Task task{.spec = [](int) { return ToySpec(); }, .run = ToyRun(3)};
    task.options = [&](int rank) {
      TrainingOptions options{.log_dir = log};
      options.stop = &tokens[static_cast<size_t>(rank)];
      return options;
    };
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank == told && run.step() == at) {
        tokens[static_cast<size_t>(rank)].stop = true;
      }
    };
    CAPTURE(trial);
    CAPTURE(told);
    CAPTURE(at);
    const std::vector<Trained> all = TrainWith(workers, task);
    for (const Trained& each : all) {
      CheckEqual(each, all[0]);
      CHECK(each.result.steps == at);
      CHECK(!each.result.evaluation.has_value());
      CHECK(Contains(each.result.stop_reason, "enough"));
    }
    CHECK(Contains(all[0].result.checkpoint, std::to_string(at)));

    // The rest gives what one piece gives.
    for (Token& token : tokens) token.stop = false;
    task.after_step = nullptr;
    const Trained rest = TrainWith(workers, task)[0];
    task.options = [](int) { return TrainingOptions(); };
    const Trained whole = TrainWith(workers, task)[0];
    REQUIRE(rest.error == "");
    for (const auto& [name, value] : whole.variables) {
      CAPTURE(name);
      CHECK(value.BitEqual(rest.variables.at(name)));
    }
  }
}

// The evaluation at the end is of no step that was due.
TEST_CASE("an end that is asked for in the last evaluation is told by all") {
  class InEvaluation : public StopToken {
   public:
    std::string Reason() const override {
      return evaluating && asked_++ > 2 ? "enough" : "";
    }
    std::atomic<bool> evaluating{false};

   private:
    mutable int asked_ = 0;
  };
  for (const int workers : {1, 2, 3}) {
    std::vector<InEvaluation> tokens(static_cast<size_t>(workers));
    Task task{.spec = [](int) { return ToySpec(); }, .run = ToyRun(3)};
    task.run.batch_size = 25;
    task.options = [&](int rank) {
      TrainingOptions options;
      options.stop = &tokens[static_cast<size_t>(rank)];
      return options;
    };
    task.add_hooks = [](Trainer& trainer) {
      trainer.AddHook(std::make_unique<StopAtStep>(7));
    };
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank == workers - 1 && run.step() == 7) {
        tokens[static_cast<size_t>(rank)].evaluating = true;
      }
    };
    for (const Trained& each : TrainWith(workers, task)) {
      CAPTURE(each.error);
      CHECK(each.error == "");
      CHECK(each.result.steps == 7);
      CHECK(!each.result.evaluation.has_value());
      CHECK(Contains(each.result.interrupted, "enough"));
    }
  }
}

TEST_CASE("a worker that fails is named by all") {
  std::mt19937 random(4);
  for (int trial = 0; trial < 6; ++trial) {
    const int workers = 2 + trial % 3;
    const int failing = static_cast<int>(random() % workers);
    const auto at = static_cast<int64_t>(1 + random() % 20);
    Task task{.spec = [](int) { return ToySpec(); }, .run = ToyRun(3)};
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank == failing && run.step() == at) {
        throw Error(Code::kUnavailable, "the disk is gone");
      }
    };
    CAPTURE(trial);
    const std::vector<Trained> all = TrainWith(workers, task);
    for (int rank = 0; rank < workers; ++rank) {
      const std::string& error = all[static_cast<size_t>(rank)].error;
      CAPTURE(error);
      CHECK(Contains(error, rank == failing
                                ? "the disk is gone"
                                : "rank " + std::to_string(failing)));
    }
  }
}

TEST_CASE("a bad example of one worker is found by all") {
  for (const int64_t bad : {0, 249}) {
    Task task{.run = ToyRun(3)};
    task.spec = [&](int) {
      TrainerSpec spec = PlainSpec();
      spec.input = [bad](const RunContext& run) {
        return testing::Points(run).Map([bad, run](Example& batch) {
          // In a batch's first or last share.
          Tensor x = batch["x"].Clone();
          const int64_t row = bad == 0 ? 0 : x.shape()[0] - 1;
          const bool here = run.rank == (bad == 0 ? 0 : run.size - 1);
          if (run.training() && here && batch["label"].IntAt(row) == 2) {
            x.data<float>()[3 * row] = std::numeric_limits<float>::infinity();
          }
          batch["x"] = x;
        });
      };
      return spec;
    };
    const std::vector<Trained> all = TrainWith(2, task);
    const std::string who = bad == 0 ? "rank 0 of 2" : "rank 1 of 2";
    for (const Trained& each : all) {
      CAPTURE(each.error);
      CHECK(Contains(each.error, "the loss is"));
      CHECK(Contains(each.error, "'fc1/"));
      CHECK(Contains(each.error, who));
      CHECK(each.error == all[0].error);
    }
  }
}

// Rank 1 cannot read an example a second time.
TEST_CASE("who fails while a bad loss is looked for is named beside it") {
  std::mutex mutex;
  std::set<float> read;
  Task task{.run = ToyRun(3)};
  task.spec = [&](int) {
    TrainerSpec spec = PlainSpec();
    spec.input = [&](const RunContext& run) {
      return testing::Points(run).Map([&, run](Example& batch) {
        if (!run.training()) return;
        Tensor x = batch["x"].Clone();
        if (run.rank == 0 && batch["label"].IntAt(0) == 2) {
          x.data<float>()[0] = std::numeric_limits<float>::infinity();
        }
        const std::lock_guard lock(mutex);
        if (run.rank == 1 && !read.insert(x.data<float>()[0]).second) {
          throw Error(Code::kDataLoss, "it is damaged");
        }
        batch["x"] = x;
      });
    };
    return spec;
  };
  const std::vector<Trained> all = TrainWith(2, task);
  for (const Trained& each : all) {
    CAPTURE(each.error);
    CHECK(each.error.starts_with("step "));
    CHECK(Contains(each.error, "the loss is"));
    CHECK(Contains(each.error, "running the steps again failed: "));
  }
  CHECK(Contains(all[0].error, "rank 1"));
  CHECK(Contains(all[1].error, "it is damaged"));
}

// Rank 0's snapshot is renewed with each save, the others' are not.
TEST_CASE("a loss that is no number is found beside saves, and not saved") {
  for (const int64_t every : {1, 4, 5, 1000}) {
    TemporaryFolder folder;
    Task task{.spec = [](int) { return testing::TrappedSpec(); },
              .run = ToyRun(3)};
    task.options = [&](int) {
      TrainingOptions options{.log_dir = folder / "log"};
      options.save_every = {.steps = every, .seconds = 0};
      options.evaluate_every = 0.3;
      options.log_every = 4;
      return options;
    };
    CAPTURE(every);
    for (const Trained& each : TrainWith(2, task)) {
      CAPTURE(each.error);
      CHECK(Contains(each.error, "'trap/log'"));
      CHECK(Contains(each.error, "in step 14"));
    }
    const auto steps =
        CheckpointManager::ForReading(folder / "log").Steps().ValueOrThrow();
    CHECK((every > 14 || !steps.empty()));
    for (const int64_t step : steps) CHECK(step < 14);
  }
}

// Which has a loss of nothing, NaN, that is nobody's fault.
TEST_CASE("a share of no examples is not taken for a bad one") {
  Task task{.spec =
                [](int) {
                  TrainerSpec spec = testing::TrappedSpec();
                  spec.input = [](const RunContext& run) {
                    Tensor x(DType::kFloat32, {17, 3});
                    Tensor label = Tensor::Zeros(DType::kInt64, {17});
                    for (int64_t i = 0; i < 17 * 3; ++i) {
                      x.data<float>()[i] = static_cast<float>(i % 7);
                    }
                    Dataset all =
                        datasets::FromTensors({{"x", x}, {"label", label}})
                            .Batch(run.batch_size);
                    return run.training() ? all.Repeat() : all;
                  };
                  return spec;
                },
            .run = ToyRun(20)};
  task.run.batch_size = 16;
  for (const Trained& each : TrainWith(2, task)) {
    CAPTURE(each.error);
    CHECK(Contains(each.error, "'trap/log'"));
    CHECK(Contains(each.error, "in step 14"));
  }
}

TEST_CASE("what was trained since the last save outlives another worker") {
  TemporaryFolder folder;
  Task task{.spec = [](int) { return ToySpec(); }, .run = ToyRun(10)};
  task.options = [&](int) {
    TrainingOptions options{.log_dir = folder / "log"};
    options.evaluate_every = 0;
    options.log_every = 10;
    return options;
  };
  task.after_step = [](int rank, TrainingRun& run) {
    if (rank == 1 && run.step() == 57) throw Error(Code::kDataLoss, "gone");
  };
  CHECK(TrainWith(2, task)[0].error != "");
  const auto steps =
      CheckpointManager::ForReading(folder / "log").Steps().ValueOrThrow();
  REQUIRE(!steps.empty());
  CHECK(steps.back() >= 50);
  // And goes on to the same end.
  task.after_step = nullptr;
  const Trained rest = TrainWith(2, task)[0];
  task.options = [](int) { return TrainingOptions(); };
  const Trained whole = TrainWith(2, task)[0];
  for (const auto& [name, value] : whole.variables) {
    CAPTURE(name);
    CHECK(value.BitEqual(rest.variables.at(name)));
  }
}

}  // namespace
}  // namespace sluice
