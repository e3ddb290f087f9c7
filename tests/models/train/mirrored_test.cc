// Several devices of one process: the bits of as many virtual workers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "models/train/hooks/hooks.h"
#include "tests/support/mirrored.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckNear;
using testing::CheckSameBits;
using testing::OnDevices;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToySpec;
using testing::ToyTask;
using testing::Trained;
using testing::TrainWith;
using testing::Virtual;
using testing::WithRandomOptimizer;

// With dropout and statistics, at any precision.
TEST_CASE("mirrored devices train the bits of one process") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 24; ++trial) {
    const int64_t leaves = int64_t{1} << random() % 4;
    const auto devices = static_cast<int>(
        1 + random() % static_cast<uint64_t>(std::min<int64_t>(leaves, 4)));
    Task task = ToyTask(leaves, 2);
    task.run.batch_size = leaves + static_cast<int64_t>(random() % 30);
    const uint32_t seed = random();
    // Half of them end with a batch that some leaves have nothing of.
    const bool repeats = random() % 2 == 0;
    task.spec = [&](int) {
      return WithRandomOptimizer(ToySpec(), seed, repeats);
    };
    constexpr Recompute kWhich[] = {Recompute::kNone, Recompute::kNorms,
                                    Recompute::kAll};
    const bool on_each = random() % 2 == 0;
    TrainingOptions options = Virtual(leaves);
    options.session.precision = trial % 4 == 2   ? Precision::kFloat16
                                : trial % 4 == 3 ? Precision::kBFloat16
                                                 : Precision::kFloat32;
    options.gradients_between =
        trial % 4 == 1 ? DType::kBFloat16 : DType::kFloat32;
    options.recompute = kWhich[trial % 3];
    options.log_every = 3;
    task.options = [&](int) { return options; };
    CAPTURE(trial);
    CAPTURE(leaves);
    CAPTURE(devices);
    CAPTURE(on_each);
    CAPTURE(task.run.batch_size);
    CAPTURE(repeats);
    const Trained one = TrainWith(1, task)[0];
    options = OnDevices(devices, on_each, std::move(options));
    // That many virtual workers are what so many devices are.
    if (devices == leaves) options.virtual_workers = 0;
    CheckSameBits(TrainWith(1, task)[0], one);
  }
}

// To rounding: workers have a step, a replica and statistics of their own, and
// so has each device.
TEST_CASE("mirrored devices train what as many workers do") {
  for (const int devices : {1, 2, 3, 4}) {
    for (const bool on_each : {false, true}) {
      for (const bool repeats : {true, false}) {
        Task task = ToyTask(0, 3);
        task.spec = [=](int) {
          TrainerSpec spec = ToySpec();
          if (!repeats) spec.input = testing::PointsOnce;
          return spec;
        };
        CAPTURE(devices);
        CAPTURE(on_each);
        CAPTURE(repeats);
        const Trained wanted = TrainWith(devices, task)[0];
        Task mirrored = task;
        mirrored.options = [&](int) { return OnDevices(devices, on_each); };
        CheckNear(TrainWith(1, mirrored)[0], wanted, 2e-4);
        // Without what depends on a share, what one device does.
        task.spec = [](int) { return PlainSpec(); };
        mirrored.spec = task.spec;
        CheckNear(TrainWith(1, mirrored)[0], TrainWith(1, task)[0], 2e-4);
      }
    }
  }
}

TEST_CASE("a training of virtual workers goes on with any devices") {
  std::mt19937 random(2);
  const Trained whole = TrainWith(1, ToyTask(4, 6))[0];
  REQUIRE(whole.error == "");
  for (int trial = 0; trial < 4; ++trial) {
    TemporaryFolder folder;
    int64_t step = 0;
    Trained part;
    for (int piece = 0; piece < 5; ++piece) {
      // As devices, or as processes.
      const bool mirrored = piece % 2 == 0;
      const auto parts = static_cast<int>(1 + random() % 4);
      const bool on_each = random() % 2 == 0;
      step = piece == 4 ? 60 : step + 1 + static_cast<int64_t>(random() % 15);
      Task task = ToyTask(4, 6);
      task.options = [&](int) {
        TrainingOptions options = Virtual(4);
        options.log_dir = folder / "log";
        return mirrored ? OnDevices(parts, on_each, std::move(options))
                        : options;
      };
      task.add_hooks = [&](Trainer& trainer) {
        if (step < 60) trainer.AddHook(std::make_unique<StopAtStep>(step));
      };
      CAPTURE(trial);
      CAPTURE(piece);
      CAPTURE(parts);
      CAPTURE(on_each);
      part = TrainWith(mirrored ? 1 : parts, task)[0];
      CHECK(part.error == "");
    }
    CHECK(part.result.steps == 60);
    for (const auto& [name, value] : whole.variables) {
      CAPTURE(name);
      CHECK(value.BitEqual(part.variables.at(name)));
    }
  }
}

// Whose number is their own affair where no virtual workers are asked for.
TEST_CASE("a training of devices goes on with other numbers of them") {
  TemporaryFolder folder;
  int64_t step = 0;
  for (const int devices : {2, 3, 0, 1, 4}) {
    step += 5;
    Task task = ToyTask(0, 6);
    task.options = [&](int) {
      TrainingOptions options;
      options.log_dir = folder / "log";
      return devices == 0 ? options : OnDevices(devices, false, options);
    };
    task.add_hooks = [&](Trainer& trainer) {
      trainer.AddHook(std::make_unique<StopAtStep>(step));
    };
    const Trained trained = TrainWith(1, task)[0];
    CHECK(trained.error == "");
    CHECK(trained.result.steps == step);
  }
}

// What hooks write, and what only summaries read.
TEST_CASE("all devices have the variables that hooks write") {
  class Halve final : public Hook {
   public:
    void AfterStep(TrainingRun& run) override {
      if (run.step() % 3 != 0) return;
      const Output weights = run.graph().Find("fc1/weights")->output(0);
      Session& session = run.session();
      Tensor value = session.Read(weights);
      for (int64_t i = 0; i < value.elements(); ++i) {
        value.data<float>()[i] *= 0.5f;
      }
      session.Write(weights, value);
    }
  };
  Task task = ToyTask(2, 2);
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      ModelSpec model = testing::Network(scope, in, run);
      const Output beside =
          scope.graph().Variable("beside", Zeros({2}), {.trainable = false});
      model.summaries.emplace_back("beside", Sum(beside + 1));
      return model;
    };
    return spec;
  };
  task.add_hooks = [](Trainer& trainer) {
    trainer.AddHook(std::make_unique<Halve>());
  };
  std::vector<double> beside;
  task.after_step = [&](int, TrainingRun& run) {
    if (run.measurement().step == run.step()) {
      beside.push_back(run.measurement().summaries.back().second.At(0));
    }
  };
  TemporaryFolder folder;
  int folders = 0;
  const auto train = [&](TrainingOptions options) {
    options.log_dir = folder / std::to_string(folders++);  // of summaries
    options.log_every = 4;
    task.options = [&](int) { return options; };
    return TrainWith(1, task)[0];
  };
  const Trained wanted = train(Virtual(2));
  for (const bool on_each : {false, true}) {
    CAPTURE(on_each);
    CheckSameBits(train(OnDevices(2, on_each)), wanted);
  }
  CHECK(beside == std::vector<double>(15, 2.0));
}

}  // namespace
}  // namespace sluice
