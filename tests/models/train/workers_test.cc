// Several workers train one model: what one process trains, whatever their
// number, and with the same variables everywhere.
#include "models/train/workers/workers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "models/train/hooks/hooks.h"
#include "tests/support/centred_model.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckNear;
using testing::Contains;
using testing::Plain;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainWith;

// Of a training: how long its steps took, and their input and exchanges.
struct TrainingSeconds {
  double all = 0, input = 0, exchange = 0;
};

TEST_CASE("any number of workers trains what one does") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 12; ++trial) {
    const int workers = 2 + static_cast<int>(random() % 3);
    Task task;
    task.run = ToyRun(2);
    task.run.batch_size = workers + static_cast<int64_t>(random() % 30);
    const uint32_t seed = random();
    // Half of them end with a batch that some workers have nothing of.
    const bool repeats = random() % 2 == 0;
    task.spec = [&](int) {
      return testing::WithRandomOptimizer(PlainSpec(), seed, repeats);
    };
    CAPTURE(trial);
    CAPTURE(workers);
    CAPTURE(task.run.batch_size);
    CAPTURE(repeats);
    const Trained one = TrainWith(1, task)[0];
    const std::vector<Trained> all = TrainWith(workers, task);
    CheckNear(all[0], one, 2e-4);
    for (const Trained& each : all) CheckEqual(each, all[0]);
  }
}

// Batch normalisation by the whole batch, also where some workers have nothing
// of it.
TEST_CASE("synchronised batch normalisation is that of one worker") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 8; ++trial) {
    const int workers = 2 + static_cast<int>(random() % 3);
    Task task;
    task.run = ToyRun(2);
    task.run.batch_size = 5 + static_cast<int64_t>(random() % 30);
    const bool ends = random() % 2 == 0;
    const auto spec = [&](bool synchronized) {
      return [=](int) {
        TrainerSpec toy = ToySpec();
        toy.model = [synchronized](Scope& scope, const Features& in,
                                   const RunContext& run) {
          Output x = layers::Dense(scope / "fc1", in["x"], {.units = 16});
          x = layers::BatchNorm(scope / "norm", x,
                                {.training = run.training(),
                                 .activation = Tanh,
                                 .synchronized = synchronized});
          const Output logits =
              layers::Dense(scope / "logits", x, {.units = 3});
          return ModelSpec{
              .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
              .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
        };
        if (ends) toy.input = testing::PointsOnce;
        return toy;
      };
    };
    CAPTURE(trial);
    CAPTURE(workers);
    CAPTURE(task.run.batch_size);
    task.options = [trial](int) {
      constexpr Recompute kWhich[] = {Recompute::kNone, Recompute::kNorms,
                                      Recompute::kAll};
      TrainingOptions options;
      options.recompute = kWhich[trial % 3];
      return options;
    };
    // The layer's own op, and what it is made of, by one worker; and by
    // several.
    task.spec = spec(false);
    const Trained one = TrainWith(1, task)[0];
    task.spec = spec(true);
    CheckNear(TrainWith(1, task)[0], one, 2e-4);
    const std::vector<Trained> all = TrainWith(workers, task);
    CheckNear(all[0], one, 2e-4);
    for (const Trained& each : all) CheckEqual(each, all[0]);
  }
}

// Dropout, statistics and half precision.
TEST_CASE("all workers have the same variables after every step") {
  std::mt19937 random(2);
  for (const Precision precision :
       {Precision::kFloat32, Precision::kFloat16, Precision::kBFloat16}) {
    const int workers = 2 + static_cast<int>(random() % 2);
    Task task{.spec = [](int) { return ToySpec(); }, .run = ToyRun(3)};
    task.options = [&](int) {
      TrainingOptions options;
      options.session.precision = precision;
      options.gradients_between =
          HalfTypeOf(precision).value_or(DType::kBFloat16);
      return options;
    };
    task.add_hooks = [](Trainer& trainer) {
      trainer.AddHook(std::make_unique<EarlyStopping>(2));
    };
    const std::vector<Trained> all = TrainWith(workers, task);
    for (const Trained& each : all) CheckEqual(each, all[0]);
    CHECK(all[0].losses.back() < all[0].losses.front());
  }
}

// One of them reads slowly; the others say that they wait for it.
TEST_CASE("a training says for how long it waits for other workers") {
  for (const int workers : {1, 3}) {
    std::vector<TrainingSeconds> seconds(static_cast<size_t>(workers));
    Task task;
    task.run = ToyRun(1);
    task.spec = [](int rank) {
      TrainerSpec spec = PlainSpec();
      spec.input = [rank](const RunContext& run) {
        return testing::Points(run).Map([rank](Example&) {
          if (rank != 1) return;
          std::this_thread::sleep_for(std::chrono::milliseconds(60));
        });
      };
      return spec;
    };
    task.after_step = [&](int rank, TrainingRun& run) {
      seconds[static_cast<size_t>(rank)] = {
          run.training_seconds(), run.input_seconds(), run.exchange_seconds()};
    };
    for (const Trained& each : TrainWith(workers, task)) {
      CHECK(each.error == "");
    }
    for (int rank = 0; rank < workers; ++rank) {
      CAPTURE(rank);
      const TrainingSeconds& mine = seconds[static_cast<size_t>(rank)];
      CHECK(mine.all >= mine.input + mine.exchange);
      if (workers == 1) {
        CHECK(mine.exchange == 0);
      } else if (rank == 1) {
        CHECK(mine.input > 0.02);
      } else {
        CHECK(mine.exchange > 0.25 * seconds[1].input);
      }
    }
  }
}

// By their examples: the mean is that of the whole batch.
TEST_CASE("statistics are the mean of those of the shares") {
  constexpr int64_t kBatch = 7;
  Task task;
  task.run = ToyRun(1);
  task.run.batch_size = kBatch;
  task.run.steps = 1;
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      const Output x = layers::BatchNorm(scope / "norm", in["x"],
                                         {.training = run.training()});
      return ModelSpec{.loss = Mean(x * x)};
    };
    return spec;
  };
  const std::vector<Trained> all = TrainWith(2, task);
  REQUIRE(all[0].error == "");
  CheckEqual(all[1], all[0]);

  RunContext run = task.run;
  Example batch;
  Iterator batches = testing::Points(run).MakeIterator();
  REQUIRE(batches.Next(&batch).ValueOrThrow());
  const double momentum = layers::BatchNormOptions().momentum;
  for (int64_t c = 0; c < 3; ++c) {
    double mean = 0;
    for (int64_t i = 0; i < kBatch; ++i) {
      mean += batch["x"].At(3 * i + c) / static_cast<double>(kBatch);
    }
    // It began at 0.
    CHECK(all[0].variables.at("norm/running_mean").At(c) ==
          doctest::Approx((1 - momentum) * mean).epsilon(1e-4));
  }
}

// By nodes that are no update of the graph's, each of a worker's own share.
TEST_CASE("workers have the mean of what they write on the way") {
  Task task{.spec = [](int) { return testing::ChainedSpec(); },
            .run = ToyRun(1)};
  const Trained one = TrainWith(1, task)[0];
  for (const int workers : {2, 3}) {
    CAPTURE(workers);
    const std::vector<Trained> all = TrainWith(workers, task);
    for (const Trained& each : all) testing::CheckSameBits(each, all[0]);
    // These are of the input alone, and of a batch the mean of its shares'.
    for (const char* name : {"mean", "centre"}) {
      CAPTURE(name);
      CheckNear(all[0].variables.at(name), one.variables.at(name), 1e-5);
    }
  }
}

TEST_CASE("a training goes on with another number of workers") {
  TemporaryFolder folder;
  const auto train = [&](int workers, const std::string& log, int64_t stop) {
    Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(6)};
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / log};
    };
    task.add_hooks = [&](Trainer& trainer) {
      trainer.AddHook(std::make_unique<StopAtStep>(stop));
    };
    const std::vector<Trained> all = TrainWith(workers, task);
    for (const Trained& each : all) CheckEqual(each, all[0]);
    return all[0];
  };
  train(2, "parts", 13);
  train(3, "parts", 27);
  train(1, "parts", 44);
  Trained parts = train(4, "parts", 60);
  CHECK(parts.result.steps == 60);
  Trained whole = train(1, "whole", 60);
  whole.losses.erase(whole.losses.begin(), whole.losses.begin() + 44);
  CheckNear(parts, whole, 1e-3);
  // Of the same number it has the same bits.
  train(2, "two parts", 31);
  parts = train(2, "two parts", 60);
  whole = train(2, "two", 60);
  whole.losses.erase(whole.losses.begin(), whole.losses.begin() + 31);
  CheckEqual(parts, whole);
}

TEST_CASE("a metric that does not merge is refused before the first step") {
  class Last : public MetricState {
   public:
    void Add(std::span<const Tensor> values, int64_t) override {
      value_ = values[0].At(0);
    }
    double Value() const override { return value_; }

   private:
    double value_ = 0;
  };
  Task task{.spec =
                [](int) {
                  TrainerSpec spec = PlainSpec();
                  spec.model = [](Scope& scope, const Features& in,
                                  const RunContext& run) {
                    ModelSpec model = Plain(scope, in, run);
                    model.metrics.emplace_back(
                        "last", Metric({model.loss}, [] {
                          return std::make_unique<Last>();
                        }));
                    return model;
                  };
                  return spec;
                },
            .run = ToyRun(1)};
  for (const Trained& each : TrainWith(2, task)) {
    CAPTURE(each.error);
    CHECK(Contains(each.error, "'last'"));
    CHECK(each.losses.empty());
  }
}

TEST_CASE("workers that were started differently are told apart") {
  const auto errors = [](const std::function<void(int, TrainerSpec&)>& change) {
    Task task{.run = ToyRun(1)};
    task.spec = [&](int rank) {
      TrainerSpec spec = PlainSpec();
      change(rank, spec);
      return spec;
    };
    std::string first;
    for (const Trained& each : TrainWith(2, task)) {
      CHECK(each.error != "");
      if (first.empty()) first = each.error;
    }
    return first;
  };
  // The input of each is another, or is shared out by the program itself.
  CHECK(Contains(errors([](int rank, TrainerSpec& spec) {
                   spec.input = [rank](const RunContext& run) {
                     RunContext other = run;
                     other.seed += static_cast<uint64_t>(rank);
                     return testing::Points(other);
                   };
                 }),
                 "the input of rank 1 of 2"));
  CHECK(Contains(errors([](int, TrainerSpec& spec) {
                   spec.input = testing::PointsOfRank;
                 }),
                 "shared out"));
  CHECK(Contains(errors([](int rank, TrainerSpec& spec) {
                   if (rank == 1) spec.model = testing::Network;
                 }),
                 "the graph of rank 1 of 2"));
  // What is evaluated, which no exchange of a step would notice.
  CHECK(Contains(errors([](int rank, TrainerSpec& spec) {
                   spec.input = [rank](const RunContext& run) {
                     const Dataset points = testing::Points(run);
                     return run.training() || rank == 0 ? points
                                                        : points.Take(1);
                   };
                 }),
                 "the evaluation input of rank 1 of 2"));
  // Other options.
  const auto with = [](const std::function<TrainingOptions(int)>& options) {
    Task other{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
    other.options = options;
    return TrainWith(2, other);
  };
  for (const Trained& each : with(
           [](int rank) { return TrainingOptions{.log_every = 100 + rank}; })) {
    CHECK(Contains(each.error, "reports of rank 1 of 2"));
  }
  for (const Trained& each : with([](int rank) {
         TrainingOptions options;
         options.session.precision =
             rank == 0 ? Precision::kFloat32 : Precision::kBFloat16;
         return options;
       })) {
    CHECK(Contains(each.error, "the precision of rank 1 of 2"));
  }
  // A count that each would make of its own share; one of all is none.
  const auto counting = [](bool of_all) {
    Task task{.run = ToyRun(1)};
    task.spec = [=](int) {
      TrainerSpec spec = PlainSpec();
      spec.model = [=](Scope& scope, const Features& in,
                       const RunContext& run) {
        const Output seen = scope.graph().Variable(
            "seen", Zeros({}, DType::kInt64), {.trainable = false});
        const Output steps = scope.graph().Variable(
            "steps", Zeros({}, DType::kInt64), {.trainable = false});
        Output rows = Size(in["label"]);
        if (of_all) rows = AllReduce(rows, Reduction::kSum);
        if (run.training()) {
          scope.graph().AddUpdate(AssignAdd(seen, rows));
          scope.graph().AddUpdate(AssignAdd(steps, 1));
        }
        return Plain(scope, in, run);
      };
      return spec;
    };
    return TrainWith(2, task);
  };
  for (const Trained& each : counting(false)) {
    CHECK(Contains(each.error, "updates 'seen'"));
  }
  for (const Trained& each : counting(true)) {
    CAPTURE(each.error);
    REQUIRE(each.error == "");
    const auto steps = each.variables.at("steps").IntAt(0);
    CHECK(steps == each.result.steps);
    CHECK(each.variables.at("seen").IntAt(0) == steps * ToyRun(1).batch_size);
  }
  // Fewer examples in a batch than workers.
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
  task.run.batch_size = 2;
  for (const Trained& each : TrainWith(3, task)) {
    CHECK(Contains(each.error, "batches of 2"));
  }
}

// Three shares of unequal weights, whose mean of one number need not have its
// bits.
TEST_CASE(
    "a step that overflows leaves statistics as they were, on any worker") {
  Task task{.run = ToyRun(2)};
  task.run.batch_size = 16;
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      ModelSpec model = testing::Network(scope, in, run);
      model.loss = 100.0f * model.loss;
      return model;
    };
    spec.optimizer = [](const RunContext&) {
      return optimizers::Momentum(0.0005, 0.9)
          .WithLossScaling({.initial = 0x1p126, .window = 2});
    };
    return spec;
  };
  struct Seen {
    double skipped = 0;
    std::vector<Tensor> statistics;
  };
  std::vector<Seen> before(3);
  std::atomic<int> compared = 0;
  task.after_step = [&](int rank, TrainingRun& run) {
    run.Finish();
    const auto value = [&](const char* name) {
      return run.session().Read(run.graph().Get(name)).Clone();
    };
    const Seen now = {
        value("loss_scale/skipped_steps").At(0),
        {value("norm/running_mean"), value("norm/running_variance")}};
    Seen& last = before[static_cast<size_t>(rank)];
    for (size_t i = 0; i < last.statistics.size(); ++i) {
      const bool same = now.statistics[i].BitEqual(last.statistics[i]);
      CHECK(same == (now.skipped > last.skipped));
      ++compared;
    }
    last = now;
  };
  for (const Trained& each : TrainWith(3, task)) {
    REQUIRE(each.error == "");
    CHECK(each.variables.at("loss_scale/skipped_steps").At(0) > 3);
  }
  CHECK(compared > 30);
}

}  // namespace
}  // namespace sluice
