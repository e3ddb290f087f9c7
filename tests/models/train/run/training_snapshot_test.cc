// What a checkpoint has of a training's variables: all but those of the
// training itself, whatever the model calls its own.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "models/train/hooks/hooks.h"
#include "tests/support/error_text.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckSaved;
using testing::CheckVariables;
using testing::Contains;
using testing::kSync;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::Trained;
using testing::TrainOn;
using testing::TrainWith;

// Trains variables of the names that some trainings have for their own.
TrainerSpec Namesakes() {
  TrainerSpec spec = PlainSpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext&) {
    Graph& graph = scope.graph();
    const Output shift = graph.Variable("learning_rate_shift", Zeros({3}));
    const Output gate = [&] {
      const NameScope names(graph, "gate");
      return graph.Variable("contribution_0", Ones({3}));
    }();
    return testing::ThreeClasses(
        layers::Dense(scope / "logits", in["x"] * gate + shift, {.units = 3}),
        in["label"]);
  };
  return spec;
}

std::set<std::string> SavedNames(const std::string& log_dir) {
  const auto saved =
      CheckpointManager::ForReading(log_dir).RestoreNewest().ValueOrThrow();
  REQUIRE(saved);
  std::set<std::string> names;
  for (const NamedTensor& tensor : saved->checkpoint.tensors) {
    names.insert(tensor.name);
  }
  return names;
}

TEST_CASE("a model's variables are saved, whatever they are called") {
  for (const int workers : {1, 2}) {
    CAPTURE(workers);
    Task task{.spec = [](int) { return Namesakes(); }, .run = ToyRun(4)};
    const Trained whole = TrainWith(workers, task)[0];
    REQUIRE(whole.error == "");
    CHECK(whole.variables.at("gate/contribution_0").At(0) != 1);
    CHECK(whole.variables.at("learning_rate_shift").At(0) != 0);

    TemporaryFolder folder;
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "log"};
    };
    Trained part;
    for (const int64_t stop : {10, 23, 40}) {  // in an epoch, too
      CAPTURE(stop);
      task.add_hooks = [&](Trainer& trainer) {
        trainer.AddHook(std::make_unique<StopAtStep>(stop));
      };
      part = TrainWith(workers, task)[0];
      REQUIRE(part.error == "");
      CheckSaved(folder / "log", part);
      const std::set<std::string> names = SavedNames(folder / "log");
      CHECK(names.contains("gate/contribution_0"));
      CHECK(names.contains("learning_rate_shift"));
    }
    CHECK(part.result.steps == 40);
    CheckVariables(part, whole);
  }
}

// Where workers contribute to steps that do not wait for all.
std::vector<Trained> TrainBacked(const Task& task) {
  return TrainOn(1, 2, kSync, task,
                 [](TrainingServers& servers) { servers.backups = 0; });
}

TEST_CASE("contributions are not saved, and a model's variables are none") {
  TemporaryFolder folder;
  Task task{.spec = [](int) { return Namesakes(); }, .run = ToyRun(1)};
  task.options = [&](int) {
    return TrainingOptions{.log_dir = folder / "log"};
  };
  for (const Trained& each : TrainBacked(task)) REQUIRE(each.error == "");
  const std::set<std::string> names = SavedNames(folder / "log");
  CHECK(names.contains("gate/contribution_0"));
  CHECK(names.contains("logits/weights"));
  for (const char* contribution : {"gate/contribution_0/contribution_0",
                                   "logits/weights/contribution_1"}) {
    CHECK_FALSE(names.contains(contribution));
  }

  // What would be taken for one is refused.
  task.spec = [](int) {
    TrainerSpec spec = PlainSpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      Graph& graph = scope.graph();
      graph.Variable("gate", Ones({3}), {.trainable = false});
      {
        const NameScope gate(graph, "gate");
        graph.Variable("contribution_5", Ones({3}), {.trainable = false});
      }
      return testing::Plain(scope, in, run);
    };
    return spec;
  };
  task.options = [](int) { return TrainingOptions(); };
  for (const Trained& each : TrainBacked(task)) {
    CAPTURE(each.error);
    CHECK(Contains(each.error,
                   "'gate/contribution_5' is the name of what a worker "
                   "contributes to 'gate'"));
  }
  CHECK(TrainWith(1, task)[0].error == "");
}

TEST_CASE("what schedules are ahead by is no variable of the model") {
  Task task;
  task.run = ToyRun(1);
  task.spec = [](int) {
    TrainerSpec spec = PlainSpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      scope.graph().Variable("learning_rate_shift", Zeros({}, DType::kInt64),
                             {.trainable = false});
      return testing::Plain(scope, in, run);
    };
    return spec;
  };
  CHECK(TrainWith(1, task)[0].error == "");
  task.options = [](int) { return TrainingOptions{.batch_by_workers = true}; };
  CHECK(Contains(TrainWith(1, task)[0].error,
                 "'learning_rate_shift' is the name of what schedules are "
                 "ahead by"));
}

}  // namespace
}  // namespace sluice
