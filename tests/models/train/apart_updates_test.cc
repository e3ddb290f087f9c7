// What workers with speeds of their own assign to variables, such as moving
// statistics and an optimizer's means: of each batch that one of them has
// trained on it is in the end, as often as any.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "graph/ops/control.h"
#include "graph/row_pieces.h"
#include "tests/support/served_training.h"
#include "tests/support/turns.h"

namespace sluice {
namespace {

using testing::kAnyLead;
using testing::Lead;
using testing::Task;
using testing::ToyRun;
using testing::Trained;
using testing::TrainOn;
using testing::Turns;

constexpr int64_t kBatch = 8, kBatches = 16;
constexpr int64_t kColumns = 24, kFew = 4;
constexpr double kMomentum = 0.8;

// Batches that are far from each other.
Dataset Rising(const RunContext& run) {
  constexpr int64_t kRows = kBatch * kBatches;
  Tensor x(DType::kFloat32, {kRows, kColumns});
  Tensor label(DType::kInt64, {kRows});
  for (int64_t i = 0; i < kRows; ++i) {
    label.data<int64_t>()[i] = i % 3;
    for (int64_t j = 0; j < kColumns; ++j) {
      const auto place = static_cast<float>(i * kColumns + j);
      x.data<float>()[i * kColumns + j] =
          static_cast<float>(i) + 3 * std::sin(place);
    }
  }
  Dataset all = datasets::FromTensors({{"x", x}, {"label", label}});
  if (run.training()) all = all.Repeat();
  return all.Batch(run.batch_size);
}

// Batch normalisation, a sum and two averages, which are written by what was
// read before the normalisation and found after it.
ModelSpec Moving(Scope& scope, const Features& in, const RunContext& run) {
  Graph& graph = scope.graph();
  const auto variable = [&](const char* name, const Shape& shape) {
    return graph.Variable(name, Zeros(shape), {.trainable = false});
  };
  const Output sum = variable("sum", {kColumns});
  const Output average = variable("average_of_all", {});
  const Output few = variable("few", {kFew});
  const Output x =
      layers::BatchNorm(scope / "norm", in["x"],
                        {.training = run.training(), .momentum = kMomentum});
  if (run.training()) {
    Output seen;
    {
      const ControlScope after(graph, {x});
      seen = Identity(in["x"]);
    }
    graph.AddUpdate(Assign(sum, sum + Sum(seen, {0})));
    const Output moved = Assign(average, 0.9f * average + 0.1f * Mean(seen));
    const Output mean = Mean(Slice(seen, {0, 0}, {-1, kFew}), {0});
    graph.AddUpdate(Group(
        graph, {moved, Assign(few, few - 0.25f * (few - mean))}, "averages"));
  }
  const Output logits = layers::Dense(scope / "logits", x, {.units = 3});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"]))};
}

TrainerSpec MovingSpec() {
  return {.name = "moving",
          .input = Rising,
          .model = Moving,
          .optimizer = [](const RunContext&) { return optimizers::Sgd(0.01); }};
}

// The same of batches one after another, by hand.
struct ByHand {
  std::vector<double> sum = std::vector<double>(kColumns, 0);
  std::vector<double> mean = std::vector<double>(kColumns, 0);
  std::vector<double> variance = std::vector<double>(kColumns, 1);
  std::vector<double> few = std::vector<double>(kFew, 0);
  double average = 0;

  void Add(const Tensor& x) {
    const int64_t rows = x.shape()[0];
    double of_all = 0;
    for (int64_t j = 0; j < kColumns; ++j) {
      double column = 0, squares = 0;
      for (int64_t i = 0; i < rows; ++i) column += x.At(i * kColumns + j);
      const double batch = column / static_cast<double>(rows);
      for (int64_t i = 0; i < rows; ++i) {
        const double distance = x.At(i * kColumns + j) - batch;
        squares += distance * distance;
      }
      const auto at = static_cast<size_t>(j);
      sum[at] += column;
      mean[at] = kMomentum * mean[at] + (1 - kMomentum) * batch;
      variance[at] = kMomentum * variance[at] +
                     (1 - kMomentum) * squares / static_cast<double>(rows - 1);
      if (j < kFew) few[at] -= 0.25 * (few[at] - batch);
      of_all += batch / static_cast<double>(kColumns);
    }
    average = 0.9 * average + 0.1 * of_all;
  }
};

void CheckNear(const Tensor& got, const std::vector<double>& wanted) {
  REQUIRE(got.elements() == static_cast<int64_t>(wanted.size()));
  for (int64_t i = 0; i < got.elements(); ++i) {
    CAPTURE(i);
    const double value = wanted[static_cast<size_t>(i)];
    CHECK(std::abs(got.At(i) - value) <= 1e-4 * (1 + std::abs(value)));
  }
}

struct Where {
  int servers;
  Lead lead;
  bool cut;
};
const Where kPlaces[] = {
    {1, kAnyLead, false}, {2, int64_t{20}, false}, {2, kAnyLead, true}};

// Rank 0 has read, then rank 1 does some steps, then rank 0 writes. `halfway`
// and `after_step` are as of Turns.
std::vector<Trained> TrainInTurns(
    const TrainerSpec& spec, const Where& where,
    const std::function<bool(const InstructionLabel& ran)>& halfway,
    const std::function<void(TrainingRun& run)>& after_step) {
  const std::vector<Turns::Round> rounds = {{0, 0}, {2, 0}, {0, 1}, {0, 0},
                                            {1, 1}, {0, 0}, {0, 0}, {3, 0}};
  Turns turns(rounds, halfway, after_step);
  Task task{.spec = [&](int) { return spec; }, .run = ToyRun(1)};
  task.run.batch_size = kBatch;
  task.run.steps = 2 * static_cast<int64_t>(rounds.size());
  task.options = [](int) { return TrainingOptions{.evaluate_every = 0}; };
  task.add_hooks = [&](Trainer& trainer) { turns.AddTo(trainer); };
  return TrainOn(where.servers, 2, where.lead, task, [&](TrainingServers& to) {
    if (where.cut) to.dense_from = 1;
  });
}

TEST_CASE("what others write between a worker's read and its write stays") {
  for (const Where& where : kPlaces) {
    CAPTURE(where.servers);
    CAPTURE(where.cut);
    ByHand wanted;
    bool spreads = false;
    const std::vector<Trained> all = TrainInTurns(
        MovingSpec(), where,
        [](const InstructionLabel& ran) {
          return ran.op.starts_with("BatchNorm") &&
                 ran.op.find("Grad") == std::string::npos;
        },
        [&](TrainingRun& run) {
          wanted.Add(run.batch()["x"]);
          const Node* const mean = run.graph().Find("norm/running_mean");
          spreads = SpreadsRows(*mean);
        });
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CheckNear(each.variables.at("sum"), wanted.sum);
      CheckNear(each.variables.at("norm/running_mean"), wanted.mean);
      CheckNear(each.variables.at("norm/running_variance"), wanted.variance);
      CheckNear(each.variables.at("average_of_all"), {wanted.average});
      CheckNear(each.variables.at("few"), wanted.few);
    }
    CHECK(spreads == where.cut);
  }
}

// The gradient of w is the mean of a batch, whatever w is; it is computed when
// w has come from its server, which then has its slots at hand, too.
ModelSpec Linear(Scope& scope, const Features& in, const RunContext&) {
  Graph& graph = scope.graph();
  const Output w = graph.Variable("w", Filled(1, {kColumns}));
  Output x;
  {
    const ControlScope after(graph, {Abs(w)});
    x = Identity(in["x"]);
  }
  return {.loss = Sum(w * Mean(x, {0}))};
}

// LAMB's means of the gradients of batches one after another, by hand.
struct SlotsByHand {
  std::vector<double> m = std::vector<double>(kColumns, 0);
  std::vector<double> v = std::vector<double>(kColumns, 0);

  void Add(const Tensor& x) {
    const int64_t rows = x.shape()[0];
    for (int64_t j = 0; j < kColumns; ++j) {
      double g = 0;
      for (int64_t i = 0; i < rows; ++i) g += x.At(i * kColumns + j);
      g /= static_cast<double>(rows);
      const auto at = static_cast<size_t>(j);
      m[at] = 0.9 * m[at] + 0.1 * g;
      v[at] = 0.999 * v[at] + 0.001 * g * g;
    }
  }
};

TEST_CASE("means that an optimizer assigns to its slots are of all gradients") {
  for (const Where& where : kPlaces) {
    CAPTURE(where.servers);
    CAPTURE(where.cut);
    SlotsByHand wanted;
    bool spreads = false;
    const TrainerSpec spec = {
        .name = "linear",
        .input = Rising,
        .model = Linear,
        .optimizer = [](const RunContext&) { return optimizers::Lamb(0.001); }};
    const std::vector<Trained> all = TrainInTurns(
        spec, where,
        [](const InstructionLabel& ran) { return ran.op == "Mean"; },
        [&](TrainingRun& run) {
          wanted.Add(run.batch()["x"]);
          spreads = SpreadsRows(*run.graph().Find("w/m"));
        });
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CheckNear(each.variables.at("w/m"), wanted.m);
      CheckNear(each.variables.at("w/v"), wanted.v);
    }
    CHECK(spreads == where.cut);
  }
}

TEST_CASE("sums of workers at random speeds lose nothing") {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const int workers = 2 + static_cast<int>(seed % 3);
    std::mutex mutex;
    ByHand wanted;
    Task task{.spec = [](int) { return MovingSpec(); }, .run = ToyRun(1)};
    task.run.batch_size = kBatch;
    task.run.steps = 12 * workers;
    task.options = [](int) { return TrainingOptions{.evaluate_every = 0}; };
    task.after_step = [&](int rank, TrainingRun& run) {
      {
        const std::lock_guard lock(mutex);
        wanted.Add(run.batch()["x"]);
      }
      thread_local std::mt19937 mine(seed * 16 + static_cast<uint32_t>(rank));
      std::this_thread::sleep_for(std::chrono::milliseconds(mine() % 3));
    };
    const Lead lead = seed % 2 == 0 ? Lead(kAnyLead) : Lead(2);
    for (const Trained& each : TrainOn(1, workers, lead, task)) {
      REQUIRE(each.error == "");
      CheckNear(each.variables.at("sum"), wanted.sum);
    }
  }
}

}  // namespace
}  // namespace sluice
