// Trainings whose classifier is cut over the workers: what one process trains,
// with checkpoints that any number of them goes on from.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/ceil_div.h"
#include "io/checkpoints/checkpoint.h"
#include "io/files/file.h"
#include "models/nn/classifier.h"
#include "models/nn/losses.h"
#include "models/nn/parts.h"
#include "models/train/hooks/hooks.h"
#include "models/train/hooks/plateau.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckNear;
using testing::Contains;
using testing::RandomOptimizer;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainWith;

// As testing::Plain, with labels of 0, 1 and 2 among more classes. `trapped`:
// from step 14 on rank 1's features are no numbers.
ModelSpec CutNetwork(Scope& scope, const Features& in, const RunContext& run,
                     int64_t classes, bool trapped = false) {
  Output x =
      layers::Dense(scope / "fc1", in["x"], {.units = 16, .activation = Tanh});
  if (trapped && run.training()) {
    Graph& graph = scope.graph();
    const Output time = Cast(GlobalStep(graph) * WorkerRank(graph), x.dtype());
    const NameScope names(graph, "trap");
    x = x + 0 * Log(12.5 - time);
  }
  const layers::Classifier classifier(
      scope / "logits", x,
      {.classes = classes,
       .bias = initializers::Uniform(-0.1, 0.1),
       .workers = run.size,
       .share = CeilDiv(run.batch_size, run.size)});
  ModelSpec model = {.loss = losses::SparseSoftmaxCrossEntropy(
                         classifier, in["label"], {.label_smoothing = 0.1})};
  model.metrics = {{"accuracy", classifier.Accuracy(in["label"])},
                   {"top_2", classifier.TopKAccuracy(in["label"], 2)}};
  if (!classifier.is_cut()) {
    model.exports = {{"probabilities", Softmax(classifier.Logits())}};
  }
  return model;
}

TrainerSpec CutSpec(int64_t classes) {
  TrainerSpec spec = ToySpec();
  spec.model = [classes](Scope& scope, const Features& in,
                         const RunContext& run) {
    return CutNetwork(scope, in, run, classes);
  };
  return spec;
}

// The first worker's, with wholes in place of the parts of all.
Trained Together(std::vector<Trained> all,
                 const std::map<std::string, Tensor>& wholes) {
  Trained together = all[0];
  for (auto& [name, value] : together.variables) {
    const Tensor& whole = wholes.at(name);
    if (whole.shape() == value.shape()) continue;
    value = Tensor::Zeros(whole.dtype(), whole.shape());
    for (size_t rank = 0; rank < all.size(); ++rank) {
      PutPart(all[rank].variables.at(name), static_cast<int64_t>(rank),
              static_cast<int64_t>(all.size()), &value);
    }
  }
  return together;
}

TEST_CASE("any number of workers trains what one does, each a part") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 12; ++trial) {
    const int workers = 2 + trial % 2;
    const int64_t classes = 3 + static_cast<int64_t>(random() % 5);
    const uint32_t seed = random();
    const bool repeats = random() % 2 == 0;
    Task task;
    task.run = ToyRun(1);
    task.run.batch_size = workers + static_cast<int64_t>(random() % 30);
    task.spec = [&](int) {
      TrainerSpec spec = CutSpec(classes);
      spec.optimizer = [&](const RunContext&) {
        if (trial == 0) return optimizers::Lars(0.5);
        if (trial == 1) return optimizers::Lamb(0.01);
        if (trial == 2) {
          return optimizers::Adam(0.01).With(gradients::ClipByNorm(0.1));
        }
        if (trial == 3) {
          return optimizers::Sgd(0.5).With(gradients::ClipByGlobalNorm(0.1));
        }
        std::mt19937 same(seed);
        return RandomOptimizer(same);
      };
      if (!repeats) spec.input = testing::PointsOnce;
      return spec;
    };
    CAPTURE(trial);
    CAPTURE(workers);
    CAPTURE(classes);
    CAPTURE(task.run.batch_size);
    CAPTURE(repeats);
    const Trained one = TrainWith(1, task)[0];
    const std::vector<Trained> all = TrainWith(workers, task);
    for (const Trained& each : all) REQUIRE(each.error == "");
    const Tensor& part = all[1].variables.at("logits/weights");
    CHECK(part.shape() == Shape{16, CeilDiv<int64_t>(classes, workers)});
    CheckNear(Together(all, one.variables), one, 2e-4);
    for (const Trained& each : all) CHECK(each.losses == all[0].losses);
    if (trial > 5) continue;
    const std::vector<Trained> again = TrainWith(workers, task);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      CheckEqual(again[rank], all[rank]);
    }
  }
}

std::map<std::string, Tensor> SavedIn(const std::string& folder) {
  const auto saved =
      CheckpointManager::ForReading(folder).RestoreNewest().ValueOrThrow();
  REQUIRE(saved.has_value());
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& tensor : saved->checkpoint.tensors) {
    tensors[tensor.name] = tensor.tensor;
  }
  return tensors;
}

Task Saving(const std::string& folder, double epochs) {
  Task task;
  task.run = ToyRun(epochs);
  task.spec = [](int) {
    TrainerSpec spec = CutSpec(5);
    spec.optimizer = [](const RunContext&) {
      return optimizers::Adam(0.01)
          .With(gradients::ClipByGlobalNorm(0.3))
          .WithAverages(0.9);
    };
    return spec;
  };
  task.options = [folder](int) {
    TrainingOptions options;
    options.log_dir = folder;
    options.log_every = 4;
    options.save_every = {.steps = 3, .seconds = 0};
    return options;
  };
  return task;
}

// Two workers, then one process, then three: each goes on from what the one
// before has saved, in the middle of an epoch.
TEST_CASE("a checkpoint is a whole, for any number of workers") {
  const TemporaryFolder folder, straight;
  const Trained one = TrainWith(1, Saving(straight.path(), 3))[0];
  REQUIRE(one.error == "");
  const std::map<std::string, Tensor> wanted = SavedIn(straight.path());

  std::vector<Trained> all;
  int64_t step = 0;
  std::map<std::string, Tensor> before;
  for (const auto& [workers, until] : {std::pair{2, 7}, std::pair{1, 14},
                                       std::pair{3, 23}, std::pair{2, 30}}) {
    CAPTURE(workers);
    Task task = Saving(folder.path(), 3);
    task.add_hooks = [until = until](Trainer& trainer) {
      trainer.AddHook(std::make_unique<StopAtStep>(until));
    };
    all = TrainWith(workers, task);
    for (const Trained& each : all) REQUIRE(each.error == "");
    CHECK(static_cast<int64_t>(all[0].losses.size()) == until - step);
    step = all[0].result.steps;
    CHECK(step == until);
    const std::map<std::string, Tensor> saved = SavedIn(folder.path());
    REQUIRE(saved.size() == wanted.size());
    for (const auto& [name, tensor] : saved) {
      CAPTURE(name);
      CHECK(tensor.shape() == wanted.at(name).shape());
    }
    // What the workers had at the end is what was saved.
    const Trained last = Together(all, saved);
    for (const auto& [name, tensor] : last.variables) {
      CAPTURE(name);
      CHECK(tensor.BitEqual(saved.at(name)));
    }
  }
  for (const auto& [name, tensor] : SavedIn(folder.path())) {
    CAPTURE(name);
    CheckNear(tensor, wanted.at(name), 1e-3);
  }
  // One process evaluates and exports it as it does any.
  Trainer trainer(CutSpec(5), ToyRun(3), [&] {
    TrainingOptions options;
    options.log_dir = folder.path();
    return options;
  }());
  const auto evaluation = trainer.Evaluate();
  REQUIRE(evaluation.has_value());
  for (const auto& [name, value] : all[0].result.evaluation->values) {
    CAPTURE(name);
    CHECK(*evaluation->Find(name) == doctest::Approx(value).epsilon(1e-5));
  }
  trainer.Export(JoinPath(folder.path(), "export"));
  // Several have parts of it again.
  for (const int workers : {2, 3}) {
    for (const testing::Evaluated& each :
         testing::EvaluateWith(workers, Saving(folder.path(), 3))) {
      REQUIRE(each.error == "");
      CHECK(each.evaluation->step == evaluation->step);
      for (const auto& [name, value] : evaluation->values) {
        CAPTURE(name);
        CHECK(*each.evaluation->Find(name) ==
              doctest::Approx(value).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("what is begun with weights of a file is cut, too") {
  const TemporaryFolder folder;
  Task first = Saving(folder.path(), 1);
  REQUIRE(TrainWith(1, first)[0].error == "");
  const std::string weights = CheckpointManager::ForReading(folder.path())
                                  .RestoreNewest()
                                  .ValueOrThrow()
                                  ->path;
  Task second = Saving("", 1);
  for (const std::string reset : {"", "logits/*"}) {
    CAPTURE(reset);
    second.options = [&](int) {
      TrainingOptions options;
      options.weights = weights;
      options.reset = reset;
      return options;
    };
    const Trained one = TrainWith(1, second)[0];
    const std::vector<Trained> all = TrainWith(3, second);
    for (const Trained& each : all) REQUIRE(each.error == "");
    CheckNear(Together(all, one.variables), one, 2e-4);
  }
}

TEST_CASE("half precision and computing again work with parts") {
  for (const bool half : {true, false}) {
    Task task;
    task.run = ToyRun(1);
    task.spec = [](int) {
      TrainerSpec spec = CutSpec(5);
      spec.optimizer = [](const RunContext&) {
        return optimizers::Sgd(0.5).With(gradients::ClipByGlobalNorm(0.5));
      };
      return spec;
    };
    task.options = [half](int) {
      TrainingOptions options;
      if (half) {
        options.session.precision = Precision::kFloat16;
      } else {
        options.recompute = Recompute::kAll;
      }
      return options;
    };
    CAPTURE(half);
    const Trained one = TrainWith(1, task)[0];
    const std::vector<Trained> all = TrainWith(3, task);
    CheckNear(Together(all, one.variables), one, half ? 0.02 : 2e-4);
  }
}

// A step that overflows in one worker's part is skipped by all.
TEST_CASE("loss scaling is agreed on where one part overflows") {
  Task task;
  task.run = ToyRun(1);
  task.spec = [](int) {
    TrainerSpec spec = CutSpec(4);
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      ModelSpec model = CutNetwork(scope, in, run, 4);
      if (!run.training()) return model;
      // A gradient of 1e38, of the last class alone, in step 3: times the scale
      // it is infinite.
      const Output step = Cast(GlobalStep(scope.graph()), DType::kFloat32);
      const Output bias = scope.graph().Get("logits/bias");
      const int64_t width = bias.shape()[0];
      const Output last = Equal(Range(scope.graph(), width), width - 1);
      const Output mine = run.size == 1
                              ? scope.graph().Constant(Tensor::Scalar(true))
                              : Equal(WorkerRank(scope.graph()), run.size - 1);
      const Output huge =
          Select(LogicalAnd(Equal(step, 2), LogicalAnd(last, mine)),
                 OnesLike(bias) * 1e38, ZerosLike(bias));
      model.loss = model.loss + Sum(huge * (bias - StopGradient(bias)));
      return model;
    };
    spec.optimizer = [](const RunContext&) {
      return optimizers::Sgd(0.1).WithLossScaling({.initial = 1024});
    };
    return spec;
  };
  const Trained one = TrainWith(1, task)[0];
  REQUIRE(one.error == "");
  const std::vector<Trained> all = TrainWith(2, task);
  for (const Trained& each : all) {
    REQUIRE(each.error == "");
    CHECK(each.variables.at("loss_scale/skipped_steps").IntAt(0) == 1);
    CHECK(each.losses == all[0].losses);
  }
  CheckNear(Together(all, one.variables), one, 2e-4);
}

// Rank 1 fails in a step; rank 0 has a state of at most log_every steps before.
TEST_CASE("a worker that is gone leaves a whole checkpoint") {
  const TemporaryFolder folder;
  Task task = Saving(folder.path(), 2);
  task.options = [&](int) {
    TrainingOptions options;
    options.log_dir = folder.path();
    options.log_every = 4;
    return options;
  };
  task.tells_failure = true;
  task.after_step = [](int rank, TrainingRun& run) {
    if (rank == 1 && run.step() == 7) {
      throw Error(Code::kUnavailable, "the power failed");
    }
  };
  const std::vector<Trained> broken = TrainWith(3, task);
  for (const Trained& each : broken) CHECK(each.error != "");
  const auto saved = CheckpointManager::ForReading(folder.path())
                         .RestoreNewest()
                         .ValueOrThrow();
  REQUIRE(saved.has_value());
  CHECK(saved->checkpoint.state.step == 4);

  task.after_step = nullptr;
  const std::vector<Trained> all = TrainWith(2, task);
  const TemporaryFolder straight;
  const Trained one = TrainWith(1, Saving(straight.path(), 2))[0];
  for (const Trained& each : all) REQUIRE(each.error == "");
  CHECK(all[0].losses.size() == 16);
  for (size_t i = 0; i < 16; ++i) {
    CHECK(all[0].losses[i] == doctest::Approx(one.losses[i + 4]).epsilon(1e-3));
  }
}

TEST_CASE("the learning rate that a plateau has lowered is saved") {
  const TemporaryFolder folder;
  Task task = Saving(folder.path(), 2);
  task.spec = [](int) {
    TrainerSpec spec = CutSpec(4);
    spec.optimizer = [](const RunContext&) {
      return optimizers::Sgd(schedules::Plateau(0.0));
    };
    return spec;
  };
  task.add_hooks = [](Trainer& trainer) {
    trainer.AddHook(std::make_unique<ReduceOnPlateau>(
        PlateauOptions{.patience = 0, .factor = 0.5}));
  };
  const std::vector<Trained> all = TrainWith(2, task);
  for (const Trained& each : all) REQUIRE(each.error == "");
  int factors = 0;
  for (const auto& [name, tensor] : SavedIn(folder.path())) {
    if (!IsLearningRateFactor(name)) continue;
    ++factors;
    CHECK(tensor.At(0) == 0.5);
  }
  CHECK(factors == 1);
}

TEST_CASE("a loss that is no number ends all, named") {
  Task task;
  task.run = ToyRun(2);
  task.spec = [](int) { return testing::Trapped(CutSpec(4)); };
  for (const Trained& each : TrainWith(2, task)) {
    CHECK(Contains(each.error, "the loss is"));
    CHECK(Contains(each.error, "'trap/log' on rank 0 of 2 in step 14"));
  }
}

// The others have them in what they gather.
TEST_CASE("features that are no numbers are those of who made them") {
  Task task;
  task.run = ToyRun(2);
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      return CutNetwork(scope, in, run, 4, /*trapped=*/true);
    };
    return spec;
  };
  for (const Trained& each : TrainWith(2, task)) {
    CAPTURE(each.error);
    CHECK(Contains(each.error, "'trap/log' on rank 1 of 2 in step 14"));
  }
}

TEST_CASE("virtual workers have no parts") {
  Task task = testing::ToyTask(2, 1);
  task.spec = [](int) { return CutSpec(4); };
  for (const Trained& each : TrainWith(1, task)) {
    CHECK(Contains(each.error, "'logits/weights' is cut over the workers"));
    CHECK(Contains(each.error, "which is not for virtual workers"));
  }
}

}  // namespace
}  // namespace sluice
