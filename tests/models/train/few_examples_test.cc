// Trainings on a handful of examples: fewer than a batch, a batch of fewer than
// there are workers, or nothing to evaluate; and that go on with another
// strategy whenever they are stopped. All come to what one process comes to.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "models/train/hooks/hooks.h"
#include "tests/support/mirrored.h"
#include "tests/support/sanitizers.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::JobServers;
using testing::kAnyLead;
using testing::kSync;
using testing::Task;
using testing::TemporaryFolder;
using testing::Trained;
using testing::TrainWith;

// x float32 [3], id int64, label int64.
Dataset SomePoints(int64_t rows, const RunContext& run, bool repeats) {
  Tensor x(DType::kFloat32, {rows, 3});
  Tensor id(DType::kInt64, {rows}), label(DType::kInt64, {rows});
  std::mt19937 random(run.training() ? 1 : 2);
  for (int64_t i = 0; i < rows; ++i) {
    label.data<int64_t>()[i] = static_cast<int64_t>(random() % 3);
    id.data<int64_t>()[i] = static_cast<int64_t>(random() % 40);
    for (int64_t j = 0; j < 3; ++j) {
      x.data<float>()[3 * i + j] = static_cast<float>(random() % 65) / 32 - 1;
    }
  }
  Dataset points =
      datasets::FromTensors({{"x", x}, {"id", id}, {"label", label}});
  if (run.training()) points = points.Shuffle(5, run.seed);
  if (run.training() && repeats) points = points.Repeat();
  return points.Batch(run.batch_size).Prefetch(2);
}

// What of it hangs on a share's size is weighted by that.
ModelSpec Network(Scope& scope, const Features& in, const RunContext&) {
  Output x =
      layers::Dense(scope / "fc1", in["x"], {.units = 8, .activation = Tanh});
  x = x + layers::Embedding(scope / "words", in["id"],
                            {.size = 40, .dimensions = 8});
  return testing::ThreeClasses(layers::Dense(scope / "logits", x, {.units = 3}),
                               in["label"]);
}

Optimizer RandomOptimizer(uint32_t seed) {
  std::mt19937 random(seed);
  const auto chance = [&](uint32_t of) { return random() % of == 0; };
  const Optimizer kinds[] = {
      optimizers::Sgd(0.2),
      optimizers::Momentum(0.1, 0.5),
      optimizers::Nesterov(0.1, 0.5),
      optimizers::Adagrad(0.1, {.initial_accumulator = 0.1, .epsilon = 0.1}),
      optimizers::RmsProp(0.02, {.epsilon = 0.1}),
      optimizers::Adam(0.05, {.epsilon = 0.1}),
      optimizers::AdamW(0.05, {.epsilon = 0.1}),
      optimizers::Lars(0.5, {.trust = 0.1}),
      optimizers::Lamb(0.02, {.epsilon = 0.1})};
  const size_t kind = random() % std::size(kinds);
  Optimizer optimizer = kinds[kind];
  const bool hooked = chance(2);
  if (hooked && chance(3))
    optimizer = optimizer.With(gradients::WeightDecay(0.01));
  if (hooked && chance(3)) optimizer = optimizer.With(gradients::Accumulate(3));
  if (hooked && chance(3)) {
    optimizer = optimizer.With(gradients::ClipByGlobalNorm(0.2));
  }
  if (chance(4)) optimizer = optimizer.WithRateFactor("*bias,words/*", 0.5);
  if (chance(3)) optimizer = optimizer.WithAverages(0.5);
  if (chance(3)) {
    optimizer = optimizer.WithLossScaling({.initial = 256, .window = 3});
  }
  return optimizer;
}

struct Strategy {
  int workers = 1;
  int servers = 0;
  std::optional<int64_t> backups = std::nullopt;
  int64_t virtual_workers = 0;
  int devices = 0;
  bool variables_on_each = false;
  int stages = 1;
};

// By as many virtual workers, 0: without; of batches of so many examples, of
// which each worker is to have one.
Strategy RandomStrategy(std::mt19937& random, int64_t virtual_workers,
                        int64_t batch) {
  Strategy strategy;
  strategy.virtual_workers = virtual_workers;
  const auto draw = [&](int64_t n) { return static_cast<int>(random() % n); };
  const int64_t leaves = virtual_workers > 0 ? virtual_workers : batch;
  const int some = 1 + draw(std::min<int64_t>(4, leaves));
  switch (draw(virtual_workers > 0 ? 3 : 4)) {
    case 0:
      strategy.devices = some;
      strategy.variables_on_each = draw(2) == 0;
      break;
    case 1:
      strategy.workers = some;
      break;
    case 2:
      if (virtual_workers > 1) {
        strategy.workers = strategy.stages = 2;
      } else if (virtual_workers == 0) {
        strategy.workers = some;
        strategy.servers = 1 + draw(2);
      }
      break;
    default:
      strategy.workers = some;
      strategy.servers = 1 + draw(2);
      strategy.backups = 0;
  }
  return strategy;
}

std::vector<Trained> Train(const Strategy& strategy, Task task) {
  task.stages = strategy.stages;
  std::unique_ptr<JobServers> job;
  if (strategy.servers > 0)
    job = std::make_unique<JobServers>(strategy.servers);
  task.options = [&, before = task.options](int rank) {
    TrainingOptions options = before(rank);
    options.virtual_workers = strategy.virtual_workers;
    options.session.deterministic = true;
    if (strategy.devices > 0) {
      options = testing::OnDevices(strategy.devices, strategy.variables_on_each,
                                   options);
    }
    if (job != nullptr) {
      options.servers = job->For(rank, kSync);
      options.servers.backups = strategy.backups;
    }
    return options;
  };
  return TrainWith(strategy.workers, task);
}

void CheckNearNumber(double a, double b, double tolerance) {
  if (std::isnan(a) && std::isnan(b)) return;
  CHECK(std::abs(a - b) <= tolerance * (1 + std::abs(b)));
}

TEST_CASE("few examples are trained on alike, whoever goes on") {
  for (uint32_t seed = 0; seed < testing::Rounds(120u); ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    const int64_t rows = 1 + draw(13), evaluated = 1 + draw(9);
    const bool repeats = draw(2) == 0;
    const int64_t virtual_workers = draw(2) == 0 ? 0 : int64_t{1} << draw(4);
    Task task;
    task.run.seed = seed;
    task.run.batch_size = std::max<int64_t>(1, virtual_workers) + draw(12);
    task.run.epochs = repeats ? 0.5 + static_cast<double>(draw(40)) / 4
                              : static_cast<double>(1 + draw(6));
    if (draw(4) == 0) task.run.steps = 1 + draw(12);
    const uint32_t of_optimizer = random();
    task.spec = [&](int) {
      return TrainerSpec{
          .name = "few",
          .input =
              [&](const RunContext& run) {
                return SomePoints(run.training() ? rows : evaluated, run,
                                  repeats);
              },
          .model = Network,
          .optimizer =
              [&](const RunContext&) { return RandomOptimizer(of_optimizer); }};
    };
    TrainingOptions options;
    const double evaluate_every[] = {0, 0.3, 1};
    options.evaluate_every = evaluate_every[draw(3)];
    options.log_every = 1 + draw(3);
    task.options = [&](int) { return options; };
    CAPTURE(seed);
    CAPTURE(rows);
    CAPTURE(evaluated);
    CAPTURE(repeats);
    CAPTURE(virtual_workers);
    CAPTURE(task.run.batch_size);
    CAPTURE(task.run.epochs);
    CAPTURE(task.run.steps);
    const Trained one = TrainWith(1, task)[0];
    REQUIRE(one.error == "");
    TemporaryFolder folder;
    options.log_dir = folder / "log";
    std::vector<double> losses;
    std::string strategies;
    Trained part;
    for (int piece = 0;; ++piece) {
      REQUIRE(piece < 100);
      const Strategy strategy =
          RandomStrategy(random, virtual_workers, task.run.batch_size);
      strategies += fmt::format(" {} on {} servers{}, {} devices, {} stages;",
                                strategy.workers, strategy.servers,
                                strategy.backups ? " (backed)" : "",
                                strategy.devices, strategy.stages);
      CAPTURE(strategies);
      const int64_t pause = part.result.steps + 1 + draw(8);
      task.add_hooks = [&](Trainer& trainer) {
        trainer.AddHook(std::make_unique<StopAtStep>(pause));
      };
      const std::vector<Trained> all = Train(strategy, task);
      for (const Trained& each : all) REQUIRE(each.error == "");
      part = all[0];
      losses.insert(losses.end(), part.losses.begin(), part.losses.end());
      if (part.result.steps < pause || part.result.steps == one.result.steps) {
        break;
      }
    }
    CAPTURE(strategies);
    CHECK(part.result.steps == one.result.steps);
    REQUIRE(losses.size() == one.losses.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      CAPTURE(i);
      CheckNearNumber(losses[i], one.losses[i], 1e-4);
    }
    for (const auto& [name, value] : one.variables) {
      CAPTURE(name);
      REQUIRE(part.variables.contains(name));
      testing::CheckNear(part.variables.at(name), value, 1e-3);
    }
    REQUIRE(part.result.evaluation.has_value());
    CHECK(part.result.evaluation->examples == one.result.evaluation->examples);
    CHECK(one.result.evaluation->examples == evaluated);
    for (size_t i = 0; i < one.result.evaluation->values.size(); ++i) {
      CAPTURE(one.result.evaluation->values[i].first);
      CheckNearNumber(part.result.evaluation->values[i].second,
                      one.result.evaluation->values[i].second, 1e-2);
    }
  }
}

// Of which no bits are known, or only of some: they end, with numbers.
TEST_CASE("few examples end no training of any kind early") {
  for (uint32_t seed = 0; seed < testing::Rounds(80u); ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    const int64_t rows = 1 + draw(13), evaluated = 1 + draw(9);
    const bool repeats = draw(3) == 0;
    const int workers = static_cast<int>(1 + draw(4));
    const testing::Lead lead = draw(3) == 0 ? kAnyLead : draw(3);
    const bool backed = draw(2) == 0;
    const int64_t backups = draw(workers);
    const int servers = static_cast<int>(1 + draw(2));
    Task task;
    task.run.seed = seed;
    task.run.batch_size = (backed ? workers : 1) + draw(9);
    task.run.epochs = 3;
    const uint32_t of_optimizer = random();
    task.spec = [&](int) {
      TrainerSpec spec = testing::ToySpec();
      spec.input = [&](const RunContext& run) {
        return SomePoints(run.training() ? rows : evaluated, run, repeats);
      };
      spec.optimizer = [&](const RunContext&) {
        std::mt19937 same(of_optimizer);
        return same() % 2 == 0 ? optimizers::Adam(0.01)
                               : optimizers::Momentum(0.05).WithAverages(0.5);
      };
      return spec;
    };
    JobServers job(servers);
    task.options = [&](int rank) {
      TrainingOptions options;
      options.evaluate_every = seed % 2 == 0 ? 0.5 : 1;
      options.log_every = 2;
      options.servers = job.For(rank, backed ? kSync : lead);
      if (backed) options.servers.backups = backups;
      return options;
    };
    task.after_step = [&](int rank, TrainingRun&) {
      if ((seed + static_cast<uint32_t>(rank)) % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
    };
    CAPTURE(seed);
    CAPTURE(rows);
    CAPTURE(repeats);
    CAPTURE(workers);
    CAPTURE(backed);
    CAPTURE(backups);
    CAPTURE(task.run.batch_size);
    const std::vector<Trained> all = TrainWith(workers, task);
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CHECK(each.result.steps == all[0].result.steps);
      REQUIRE(each.result.evaluation.has_value());
      CHECK(each.result.evaluation->examples == evaluated);
      CHECK(std::isfinite(each.result.evaluation->values[0].second));
    }
    CHECK(all[0].result.steps > 0);
  }
}

}  // namespace
}  // namespace sluice
