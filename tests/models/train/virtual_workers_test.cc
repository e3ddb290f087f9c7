// Virtual workers: the bits of one process, whatever the number of processes.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "models/train/run/leaf_steps.h"
#include "models/train/workers/workers.h"
#include "tests/support/centred_model.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckNear;
using testing::CheckSameBits;
using testing::PlainSpec;
using testing::Task;
using testing::ToySpec;
using testing::ToyTask;
using testing::Trained;
using testing::TrainWith;
using testing::Virtual;
using testing::WithRandomOptimizer;

// With dropout and statistics, at any precision. What is measured is compared
// as well.
TEST_CASE("any number of workers trains the bits of one") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 16; ++trial) {
    const int64_t leaves = int64_t{1} << random() % 4;
    const auto workers = static_cast<int>(
        1 + random() % static_cast<uint64_t>(std::min<int64_t>(leaves, 4)));
    Task task = ToyTask(leaves, 2);
    task.run.batch_size = leaves + static_cast<int64_t>(random() % 30);
    const uint32_t seed = random();
    // Half of them end with a batch that some leaves have nothing of.
    const bool repeats = random() % 2 == 0;
    task.spec = [&](int) {
      return WithRandomOptimizer(ToySpec(), seed, repeats);
    };
    const Precision precision = trial % 4 == 2   ? Precision::kFloat16
                                : trial % 4 == 3 ? Precision::kBFloat16
                                                 : Precision::kFloat32;
    const DType between = trial % 4 == 1 ? DType::kBFloat16 : DType::kFloat32;
    constexpr Recompute kWhich[] = {Recompute::kNone, Recompute::kNorms,
                                    Recompute::kAll};
    task.options = [&](int) {
      TrainingOptions options = Virtual(leaves);
      options.session.precision = precision;
      options.gradients_between = between;
      options.recompute = kWhich[trial % 3];
      options.log_every = 3;
      return options;
    };
    CAPTURE(trial);
    CAPTURE(leaves);
    CAPTURE(workers);
    CAPTURE(task.run.batch_size);
    CAPTURE(repeats);
    const Trained one = TrainWith(1, task)[0];
    for (const Trained& each : TrainWith(workers, task)) {
      CheckSameBits(each, one);
    }
  }
}

// Which have a step, a replica and statistics of their own: to rounding.
TEST_CASE("virtual workers train what as many workers do") {
  for (const int workers : {1, 2, 4}) {
    for (const bool repeats : {true, false}) {
      Task task = ToyTask(workers, 3);
      task.spec = [=](int) {
        TrainerSpec spec = ToySpec();
        if (!repeats) spec.input = testing::PointsOnce;
        return spec;
      };
      CAPTURE(workers);
      CAPTURE(repeats);
      const auto check = [&](const Task& leaves, int others) {
        Task plain = leaves;
        plain.options = [](int) { return TrainingOptions(); };
        Trained wanted = TrainWith(others, plain)[0];
        CheckNear(TrainWith(1, leaves)[0], wanted, 2e-4);
        return wanted;
      };
      check(task, workers);
      // Steps that overflow leave the statistics as they were.
      Task scaled = task;
      scaled.spec = [spec = task.spec](int rank) {
        TrainerSpec other = spec(rank);
        other.model = [](Scope& scope, const Features& in,
                         const RunContext& run) {
          ModelSpec model = testing::Network(scope, in, run);
          model.loss = 100.0f * model.loss;
          return model;
        };
        other.optimizer = [](const RunContext&) {
          return optimizers::Momentum(0.0005, 0.9)
              .WithLossScaling({.initial = 0x1p126, .window = 1000});
        };
        return other;
      };
      const Trained wanted = check(scaled, workers);
      CHECK(wanted.variables.at("loss_scale/skipped_steps").At(0) > 0);
      // Without what depends on a share, what one does.
      task.spec = [](int) { return PlainSpec(); };
      check(task, 1);
    }
  }
}

// By nodes that are no update of the graph's.
TEST_CASE("what is written on the way is of each leaf, and then of all") {
  for (const int workers : {1, 2, 4}) {
    CAPTURE(workers);
    Task leaves = ToyTask(workers, 2);
    leaves.spec = [](int) { return testing::ChainedSpec(); };
    Task plain = leaves;
    plain.options = [](int) { return TrainingOptions(); };
    const Trained one = TrainWith(1, leaves)[0];
    CheckNear(one, TrainWith(workers, plain)[0], 2e-4);
    for (const char* name : {"mean", "spread", "centre"}) {
      CAPTURE(name);
      CHECK(one.variables.at(name).At(0) != 0);
    }
    for (const Trained& each : TrainWith(workers, leaves)) {
      CheckSameBits(each, one);
    }
  }
}

TEST_CASE("what is measured is the same for any number of workers") {
  using Values = std::vector<std::pair<std::string, double>>;
  const auto measured = [](int workers) {
    std::vector<std::vector<Values>> seen(static_cast<size_t>(workers));
    Task task = ToyTask(4, 2);
    task.spec = [](int) {
      TrainerSpec spec = ToySpec();
      spec.input = testing::PointsOnce;
      spec.model = testing::Plain;  // of three metrics
      return spec;
    };
    task.add_hooks = [](Trainer& trainer) {
      class All final : public Hook {
       public:
        bool Measures(const TrainingRun&, int64_t) const override {
          return true;
        }
      };
      trainer.AddHook(std::make_unique<All>());
    };
    task.after_step = [&](int rank, TrainingRun& run) {
      Values values = run.measurement().metrics;
      values.emplace_back("loss", run.measurement().loss);
      values.emplace_back("rate", run.measurement().learning_rate);
      values.emplace_back("examples", static_cast<double>(run.examples()));
      seen[static_cast<size_t>(rank)].push_back(values);
    };
    for (const Trained& each : TrainWith(workers, task)) {
      CHECK(each.error == "");
    }
    for (const auto& each : seen) CHECK(each == seen[0]);
    return seen[0];
  };
  const auto one = measured(1);
  REQUIRE(one.size() == 10);
  for (const Values& values : one) REQUIRE(values.size() == 6);
  for (const int workers : {2, 3, 4}) CHECK(measured(workers) == one);
}

}  // namespace
}  // namespace sluice
