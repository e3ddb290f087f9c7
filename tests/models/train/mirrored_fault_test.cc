// Trainings on several devices that fail, or should not begin.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/subtrees.h"
#include "models/train/hooks/hooks.h"
#include "tests/support/error_text.h"
#include "tests/support/mirrored.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::OnDevices;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToySpec;
using testing::ToyTask;
using testing::Trained;
using testing::TrainWith;
using testing::Unreadable;
using testing::Virtual;

constexpr int64_t kExamples = 100, kBatch = 25;

// Whose second batch has something wrong with the first example of a leaf's
// share, of four; or nothing.
enum class Bad : uint8_t { kNothing, kLabel, kPoint };
TrainerSpec With(Bad what, int leaf) {
  TrainerSpec spec = PlainSpec();
  spec.input = [=](const RunContext& run) {
    Tensor x(DType::kFloat32, {kExamples, 3});
    Tensor labels = Tensor::Zeros(DType::kInt64, {kExamples});
    for (int64_t i = 0; i < x.elements(); ++i) {
      x.data<float>()[i] = static_cast<float>(i % 7);
    }
    const int64_t bad = kBatch + kBatch * leaf / 4;
    if (run.training() && what == Bad::kLabel) {
      labels.data<int64_t>()[bad] = 17;
    }
    if (run.training() && what == Bad::kPoint) {
      x.data<float>()[3 * bad] = std::numeric_limits<float>::infinity();
    }
    Dataset points = datasets::FromTensors({{"x", x}, {"label", labels}});
    if (run.training()) points = points.Repeat();
    return points.Batch(run.batch_size);
  };
  return spec;
}

Trained Train(const TrainerSpec& spec, const TrainingOptions& options) {
  Task task = ToyTask(0, 3);
  task.spec = [&](int) { return spec; };
  task.options = [&](int) { return options; };
  return TrainWith(1, task)[0];
}

TEST_CASE("the device that fails is named, and the node, and all end") {
  for (const bool on_each : {false, true}) {
    for (const int leaf : {0, 1, 2, 3}) {
      for (const int devices : {2, 3, 4}) {
        TrainingOptions options = OnDevices(devices, on_each, Virtual(4));
        TemporaryFolder folder;
        options.log_dir = folder / "log";
        options.save_every = {.steps = 1, .seconds = 0};
        const Trained failed = Train(With(Bad::kLabel, leaf), options);
        CAPTURE(failed.error);
        CAPTURE(leaf);
        int device = 0;
        while (LeavesOf(4, device, devices).end <= leaf) ++device;
        const std::string where = "/cpu:" + std::to_string(device) + ": ";
        CHECK(failed.error.starts_with(where));
        CHECK(Contains(failed.error, "SparseSoftmaxCrossEntropy"));
        CHECK(Contains(failed.error, "17"));
        CHECK(failed.losses.size() == 1);
        // What was saved is of the step before, and can be gone on from.
        options.mirrored = {};
        const Trained rest = Train(With(Bad::kNothing, 0), options);
        CHECK(rest.error == "");
        CHECK(rest.result.steps == 12);
      }
    }
  }
}

TEST_CASE("what any device could not read is gone on from, with all examples") {
  for (const bool on_each : {false, true}) {
    for (const int devices : {2, 3, 4}) {
      TrainingOptions options = OnDevices(devices, on_each, Virtual(4));
      const Trained whole = Train(Unreadable(-1), options);
      REQUIRE(whole.error == "");
      for (const int leaf : {0, 1, 2, 3}) {
        CAPTURE(on_each);
        CAPTURE(devices);
        CAPTURE(leaf);
        TemporaryFolder folder;
        options.log_dir = folder / "log";
        // The first of its share of the third batch.
        const Trained failed =
            Train(Unreadable(2 * kBatch + kBatch * leaf / 4), options);
        CAPTURE(failed.error);
        CHECK(Contains(failed.error, "cannot be read"));
        CHECK(failed.losses.size() == 2);
        const Trained rest = Train(Unreadable(-1), options);
        REQUIRE(rest.error == "");
        CHECK(rest.result.steps == 12);
        for (const auto& [name, value] : whole.variables) {
          CAPTURE(name);
          CHECK(value.BitEqual(rest.variables.at(name)));
        }
      }
    }
  }
}

TEST_CASE("a bad example is found, and the device that has it") {
  for (const bool on_each : {false, true}) {
    for (const int leaf : {0, 1, 2, 3}) {
      for (const int devices : {1, 2, 3, 4}) {
        const Trained failed = Train(With(Bad::kPoint, leaf),
                                     OnDevices(devices, on_each, Virtual(4)));
        int device = 0;
        while (LeavesOf(4, device, devices).end <= leaf) ++device;
        CAPTURE(failed.error);
        CAPTURE(leaf);
        CAPTURE(devices);
        CHECK(Contains(failed.error, "the loss is"));
        CHECK(Contains(failed.error, "'fc1/"));
        const std::string where =
            (devices == 1 && on_each)
                ? "' in step 2"
                : "' on /cpu:" + std::to_string(device) + " in step 2";
        CHECK(Contains(failed.error, where));
      }
    }
  }
}

TEST_CASE("a trace has the kernels of all devices") {
  for (const bool on_each : {false, true}) {
    TemporaryFolder folder;
    Task task = ToyTask(0, 1);
    task.options = [&](int) { return OnDevices(3, on_each); };
    task.add_hooks = [&](Trainer& trainer) {
      trainer.AddHook(std::make_unique<Profile>(2, 3, folder / "trace.json"));
    };
    CHECK(TrainWith(1, task)[0].error == "");
    const std::string trace =
        FileSystem::Default().Read(folder / "trace.json").ValueOrThrow();
    for (const char* device : {"\"/cpu:0\"", "\"/cpu:1\"", "\"/cpu:2\""}) {
      CAPTURE(device);
      CHECK(Contains(trace, device));
    }
  }
}

TEST_CASE("measures for which workers meet are refused, of devices, too") {
  for (const testing::AddMeasures& add : testing::MeasuresOfAll()) {
    for (const bool on_each : {false, true}) {
      const Trained trained =
          Train(testing::Measuring(add), OnDevices(2, on_each));
      CHECK(Contains(trained.error, "'of_all' is of several workers"));
      CHECK(trained.losses.empty());
    }
  }
}

TEST_CASE("what mirrored devices are not made for is refused") {
  const auto error = [](const TrainingOptions& options, int workers = 1) {
    Task task = ToyTask(0, 1);
    task.options = [&](int) { return options; };
    const Trained trained = TrainWith(workers, task)[0];
    CHECK(trained.losses.empty());
    return trained.error;
  };
  const auto on = [](std::vector<std::string> devices) {
    TrainingOptions options;
    options.mirrored.devices = std::move(devices);
    return options;
  };
  CHECK(Contains(error(on({"/cpu:0", "/cpu:0"})), "'/cpu:0' is there twice"));
  CHECK(Contains(error(on({"/cpu:0", "/cpu:00"})), "'/cpu:00' is there twice"));
  CHECK(Contains(error(on({"/cpu:0", "/gpu:0"})),
                 "'/gpu:0' is of another kind than '/cpu:0'"));
  CHECK(Contains(error(on({"/null:0"})), "computes nothing"));
  CHECK(Contains(error(on({"/job:worker/task:0/cpu:0"})),
                 "is another process's"));
  CHECK(Contains(error(on({"/tpu:0"})), "unknown device '/tpu:0'"));
  CHECK(Contains(error(OnDevices(2, false), 2),
                 "of one process that trains by itself, there are 2"));
  CHECK(Contains(error(OnDevices(3, false, Virtual(2))),
                 "2 virtual workers for 3 devices"));
  Task few = ToyTask(0, 1);
  few.run.batch_size = 2;
  few.options = [](int) { return OnDevices(3, false); };
  CHECK(Contains(TrainWith(1, few)[0].error, "batches of 2"));
  few = ToyTask(0, 1);
  few.options = [](int) { return OnDevices(2, false); };
  few.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      const Output x =
          layers::BatchNorm(scope / "norm", in["x"],
                            {.training = run.training(), .synchronized = true});
      return ModelSpec{.loss = Mean(x * x)};
    };
    return spec;
  };
  CHECK(Contains(TrainWith(1, few)[0].error, "mirrored devices"));
  few.spec = [](int) {
    TrainerSpec spec = PlainSpec();
    spec.input = testing::PointsOfRank;
    return spec;
  };
  CHECK(Contains(TrainWith(1, few)[0].error, "shared out"));
}

}  // namespace
}  // namespace sluice
