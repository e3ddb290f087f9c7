// Models that are cut into stages: the bits of one process with as many virtual
// workers, whatever the stages, replicas and micro-batches.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "io/checkpoints/safetensors.h"
#include "models/train/hooks/hooks.h"
#include "models/train/hooks/plateau.h"
#include "models/train/run/leaf_steps.h"
#include "tests/support/centred_model.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckNear;
using testing::Contains;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToySpec;
using testing::ToyTask;
using testing::Trained;
using testing::TrainWith;
using testing::Virtual;
using testing::WithRandomOptimizer;

// Of `leaves`, as many stages and replicas as each have one of.
struct Shape {
  int stages = 1, replicas = 1;
  int workers() const { return stages * replicas; }
};
Shape RandomShape(std::mt19937& random, int64_t leaves) {
  Shape shape;
  shape.replicas = 1 << random() % 2;
  const int64_t most = std::min<int64_t>(4, leaves / shape.replicas);
  shape.stages = static_cast<int>(1 + random() % static_cast<uint64_t>(most));
  return shape;
}

std::vector<Trained> TrainOn(const Shape& shape, Task task) {
  task.stages = shape.stages;
  return TrainWith(shape.workers(), task);
}

// Rank 0 has all variables, the others those of their stages.
void CheckSameBits(const std::vector<Trained>& all, const Trained& one) {
  REQUIRE(one.error == "");
  REQUIRE(one.result.evaluation.has_value());
  for (const Trained& each : all) {
    REQUIRE(each.error == "");
    CHECK(each.losses == one.losses);
    CHECK(each.result.steps == one.result.steps);
    REQUIRE(each.result.evaluation.has_value());
    CHECK(each.result.evaluation->values == one.result.evaluation->values);
    CHECK(each.result.evaluation->examples == one.result.evaluation->examples);
    for (const auto& [name, value] : each.variables) {
      CAPTURE(name);
      CHECK(value.BitEqual(one.variables.at(name)));
    }
  }
  CHECK(all[0].variables.size() == one.variables.size());
}

TEST_CASE("stages and replicas train the bits of one process") {
  std::mt19937 random(1);
  for (uint32_t trial = 0; trial < testing::Rounds(24u); ++trial) {
    const int64_t leaves = int64_t{1} << random() % 4;
    const Shape shape = RandomShape(random, std::max<int64_t>(leaves, 2));
    Task task = ToyTask(std::max<int64_t>(leaves, 2), 2);
    task.run.batch_size = 8 + static_cast<int64_t>(random() % 30);
    const uint32_t seed = random();
    const bool repeats = random() % 2 == 0;
    const bool freezes = random() % 4 == 0;
    task.spec = [&](int) {
      return WithRandomOptimizer(ToySpec(), seed, repeats);
    };
    constexpr Recompute kWhich[] = {Recompute::kNone, Recompute::kNorms,
                                    Recompute::kAll};
    task.options = [&, options = task.options](int rank) {
      TrainingOptions more = options(rank);
      more.recompute = kWhich[trial % 3];
      more.log_every = 3;
      // Then a stage may have nothing to train, or nothing to send back.
      if (freezes) more.freeze = "fc1*";
      return more;
    };
    CAPTURE(trial);
    CAPTURE(shape.stages);
    CAPTURE(shape.replicas);
    CAPTURE(task.run.batch_size);
    CAPTURE(repeats);
    CAPTURE(freezes);
    const Trained one = TrainWith(1, task)[0];
    CheckSameBits(TrainOn(shape, task), one);
  }
}

// Where nodes are fused, which differ by where the model is cut, fewer results
// are rounded to half.
TEST_CASE("stages in half precision agree to rounding") {
  for (const Precision precision :
       {Precision::kFloat16, Precision::kBFloat16}) {
    Task task = ToyTask(4, 2);
    task.options = [=](int) {
      TrainingOptions options = Virtual(4);
      options.session.precision = precision;
      return options;
    };
    const Trained one = TrainWith(1, task)[0];
    const std::vector<Trained> all = TrainOn({2, 2}, task);
    for (const Trained& each : all) CHECK(each.losses == all[0].losses);
    CheckNear(all[0], one, precision == Precision::kFloat16 ? 0.01 : 0.05);
  }
}

TEST_CASE("a training goes on with other stages, replicas, and without") {
  constexpr int64_t kLeaves = 8;
  const auto hooks = [](Trainer& trainer, int64_t stop) {
    // Writes a variable that one stage alone has.
    trainer.AddHook(std::make_unique<ReduceOnPlateau>(
        PlateauOptions{.patience = 0, .factor = 0.5, .threshold = 0.9}));
    if (stop > 0) trainer.AddHook(std::make_unique<StopAtStep>(stop));
  };
  Task task = ToyTask(kLeaves, 6);
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.optimizer = [](const RunContext&) {
      return optimizers::Momentum(schedules::Plateau(0.05), 0.9)
          .WithAverages(0.9);
    };
    return spec;
  };
  task.add_hooks = [&](Trainer& trainer) { hooks(trainer, 0); };
  const Trained whole = TrainWith(1, task)[0];
  REQUIRE(whole.error == "");
  std::mt19937 random(2);
  for (uint32_t trial = 0; trial < testing::Rounds(6u); ++trial) {
    TemporaryFolder folder;
    int64_t step = 0;
    Trained part;
    for (int piece = 0; piece < 5; ++piece) {
      const Shape shape = RandomShape(random, kLeaves);
      step = piece == 4 ? 0 : step + 1 + static_cast<int64_t>(random() % 14);
      task.options = [&](int) {
        TrainingOptions options = Virtual(kLeaves);
        options.log_dir = folder / "log";
        return options;
      };
      task.add_hooks = [&](Trainer& trainer) { hooks(trainer, step); };
      CAPTURE(trial);
      CAPTURE(piece);
      CAPTURE(shape.stages);
      CAPTURE(shape.replicas);
      const std::vector<Trained> all = TrainOn(shape, task);
      for (const Trained& each : all) REQUIRE(each.error == "");
      part = all[0];
    }
    CHECK(part.result.steps == whole.result.steps);
    REQUIRE(part.variables.size() == whole.variables.size());
    for (const auto& [name, value] : whole.variables) {
      CAPTURE(name);
      CHECK(value.BitEqual(part.variables.at(name)));
    }
  }
}

TEST_CASE("weights from a file are those of all stages") {
  TemporaryFolder folder;
  std::string first;
  const auto train = [&](const Shape& shape, const std::string& log) {
    Task task = ToyTask(4, 1);
    task.options = [&](int) {
      TrainingOptions options = Virtual(4);
      options.log_dir = folder / log;
      if (log != "first") {
        options.weights = first;
        options.reset = "logits*";
      }
      return options;
    };
    return TrainOn(shape, task);
  };
  const Trained before = train({}, "first")[0];
  REQUIRE(before.error == "");
  first = before.result.checkpoint;
  CheckSameBits(train({2, 2}, "staged"), train({}, "whole")[0]);
}

// PyTorch flattens channels first, which the whole model alone tells.
TEST_CASE("PyTorch's weights behind Flatten are those of all stages, too") {
  TemporaryFolder folder;
  const std::string path = folder / "weights.safetensors";
  std::vector<NamedTensor> tensors;
  std::mt19937 random(2);
  const auto add = [&](const std::string& name, int64_t out, int64_t in) {
    Tensor weight(DType::kFloat32, {out, in});
    for (float& value : weight.values<float>()) {
      value = static_cast<float>(random() % 64) / 64 - 0.5f;
    }
    tensors.push_back({name + ".weight", std::move(weight)});
    tensors.push_back({name + ".bias", Tensor::Zeros(DType::kFloat32, {out})});
  };
  add("stem", 24, 3);
  add("fc1", 8, 24);
  add("logits", 3, 8);
  REQUIRE(WriteSafetensors(path, tensors).ok());

  Task task = ToyTask(4, 1);
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext&) {
      const Output stem = layers::Dense(scope / "stem", in["x"], {.units = 24});
      const Output image = Reshape(stem, {-1, 2, 3, 4});
      const Output hidden =
          layers::Dense(scope / "fc1", layers::Flatten(Relu(image)),
                        {.units = 8, .activation = Relu});
      const Output logits =
          layers::Dense(scope / "logits", hidden, {.units = 3});
      return ModelSpec{
          .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
    };
    return spec;
  };
  task.options = [&](int) {
    TrainingOptions options = Virtual(4);
    options.weights = path;
    return options;
  };
  CheckSameBits(TrainOn({2, 1}, task), TrainOn({}, task)[0]);
}

TEST_CASE("a stage that fails ends the others, who say so") {
  for (int failing = 0; failing < 4; ++failing) {
    Task task = ToyTask(4, 20);
    task.tells_failure = true;
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank == failing && run.step() == 7) {
        throw Error(Code::kInvalidArgument, "broken on purpose");
      }
    };
    CAPTURE(failing);
    const std::vector<Trained> all = TrainOn({2, 2}, task);
    for (int rank = 0; rank < 4; ++rank) {
      CAPTURE(rank);
      CAPTURE(all[rank].error);
      CHECK(Contains(all[rank].error,
                     rank == failing ? "broken on purpose" : "rank"));
    }
  }
}

// What has been gathered last is of the evaluation before.
TEST_CASE("an evaluation that fails leaves the one before its metric") {
  const TemporaryFolder folder;
  std::atomic<bool> fails = false;
  Task task = ToyTask(4, 3);
  task.spec = [&](int) {
    TrainerSpec spec = ToySpec();
    spec.input = [&fails](const RunContext& run) {
      const Dataset all = testing::Points(run);
      if (run.training()) return all;
      return all.Map([&fails](Example&) {
        if (fails) throw Error(Code::kNotFound, "no test data");
      });
    };
    return spec;
  };
  task.options = [&](int) {
    TrainingOptions options = Virtual(4);
    options.log_dir = folder / "log";
    options.log_every = 100;
    return options;
  };
  // After the first evaluation, by all.
  task.after_step = [&](int, TrainingRun& run) {
    if (run.step() == 12) fails = true;
  };
  for (const Trained& each : TrainOn({2, 1}, task)) CHECK(each.error != "");
  const auto saved = CheckpointManager::ForReading(folder / "log");
  CHECK(saved.Steps().ValueOrThrow() == std::vector<int64_t>{10});
  const auto first = saved.RestoreStep(10).ValueOrThrow();
  CHECK(first.checkpoint.state.metric.has_value());
}

TEST_CASE("a value that is no number is found in its stage") {
  Task task = ToyTask(4, 4);
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.optimizer = [](const RunContext&) { return optimizers::Sgd(1e38); };
    return spec;
  };
  // The layer: where a cut goes through one, less of it is fused.
  const auto told = [](const std::string& error) {
    return error.substr(0, error.find('/'));
  };
  const std::string one = TrainWith(1, task)[0].error;
  REQUIRE(Contains(one, "came from 'norm/"));
  for (const Trained& each : TrainOn({2, 1}, task)) {
    CAPTURE(one);
    CAPTURE(each.error);
    CHECK(one.starts_with(told(each.error)));
  }
}

TEST_CASE("what stages are not made for is refused") {
  const auto errors = [](const Shape& shape, const Task& task) {
    std::string all;
    for (const Trained& each : TrainOn(shape, task)) all += each.error + "\n";
    return all;
  };
  CHECK(Contains(errors({2, 1}, ToyTask(0, 1)), "stages are for virtual"));
  CHECK(Contains(errors({4, 1}, ToyTask(2, 1)), "2 virtual workers for 4"));
  Task placed = ToyTask(4, 1);
  placed.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      const DeviceScope there(scope.graph(), "/cpu:0");
      return testing::Network(scope, in, run);
    };
    return spec;
  };
  CHECK(Contains(errors({2, 1}, placed), "places none of its ops"));
  Task moved = ToyTask(4, 1);
  moved.spec = [](int) { return testing::CentredSpec(); };
  CHECK(Contains(errors({2, 1}, moved), "not where workers share variables"));
}

}  // namespace
}  // namespace sluice
