// Trainings by threads of this process, whose variables are on parameter
// servers of it.
#ifndef SLUICE_TESTS_SUPPORT_SERVED_TRAINING_H_
#define SLUICE_TESTS_SUPPORT_SERVED_TRAINING_H_

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "models/train/hooks/hooks.h"
#include "tests/support/job_servers.h"
#include "tests/support/worker_threads.h"

namespace sluice::testing {

using Lead = std::optional<int64_t>;
inline constexpr int64_t kAnyLead = INT64_MAX;
inline const Lead kSync = std::nullopt;

// The same task with variables on so many servers, devices of that type, which
// `change` may say more of; none: in the processes themselves.
inline std::vector<Trained> TrainOn(
    int servers, int workers, Lead lead, Task task,
    const std::function<void(TrainingServers&)>& change = {},
    DeviceType type = DeviceType::kCpu) {
  if (servers == 0) return TrainWith(workers, task);
  JobServers job(servers, type);
  task.options = [&, before = task.options](int rank) {
    TrainingOptions options = before(rank);
    options.servers = job.For(rank, lead);
    if (change) change(options.servers);
    return options;
  };
  return TrainWith(workers, task);
}

// Layers of enough rows for several servers, and a table, of which a step reads
// rows and, by most optimizers, updates all.
inline ModelSpec Wide(Scope& scope, const Features& in, const RunContext& run) {
  const Output places =
      Cast(Abs(Slice(in["x"], {0, 0}, {-1, 2})) * 16, DType::kInt64);
  const Output words =
      layers::Embedding(scope / "words", places, {.size = 40, .dimensions = 3});
  Output x =
      layers::Dense(scope / "fc1", Concat({in["x"], layers::Flatten(words)}, 1),
                    {.units = 21});
  x = layers::BatchNorm(scope / "norm", x,
                        {.training = run.training(), .activation = Relu});
  x = layers::Dense(scope / "fc2", x, {.units = 13, .activation = Tanh});
  x = layers::Dropout(scope / "dropout", x,
                      {.rate = 0.2, .training = run.training()});
  const Output logits = layers::Dense(scope / "logits", x, {.units = 3});
  return {.loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
}

inline Task WideTask(uint32_t seed, double epochs) {
  Task task;
  task.run = ToyRun(epochs);
  task.spec = [seed](int) {
    TrainerSpec spec = ToySpec();
    spec.model = Wide;
    spec.optimizer = [seed](const RunContext&) { return SomeOptimizer(seed); };
    return spec;
  };
  return task;
}

inline void CheckVariables(const Trained& a, const Trained& b) {
  REQUIRE(a.error == "");
  REQUIRE(b.error == "");
  REQUIRE(a.variables.size() == b.variables.size());
  for (const auto& [name, value] : a.variables) {
    CAPTURE(name);
    CHECK(value.BitEqual(b.variables.at(name)));
  }
}

// Stops one process's training after some steps, time and again, until it is
// done, and goes on with it as `train`, of a task, does: it ends as one that
// was not disturbed.
template <typename Train>
void CheckGoesOn(Task task, std::mt19937& random, const Train& train) {
  TemporaryFolder folder;
  const Trained undisturbed = TrainWith(1, task)[0];
  int64_t stop = 0;
  task.options = [&](int) {
    return TrainingOptions{.log_dir = folder / "log",
                           .save_every = {.steps = 4}};
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<StopAtStep>(stop));
  };
  Trained last;
  while (stop < undisturbed.result.steps) {
    stop += 1 + static_cast<int64_t>(random() % 12);
    CAPTURE(stop);
    last = train(task);
    REQUIRE(last.error == "");
  }
  CheckVariables(last, undisturbed);
  CHECK(last.result.evaluation->values ==
        undisturbed.result.evaluation->values);
}

// Of what is saved, the tensors are of the step that it says.
inline void CheckSaved(const std::string& log_dir, const Trained& trained) {
  const auto saved =
      CheckpointManager::ForReading(log_dir).RestoreNewest().ValueOrThrow();
  REQUIRE(saved);
  CHECK(saved->checkpoint.state.step == trained.result.steps);
  for (const NamedTensor& tensor : saved->checkpoint.tensors) {
    CAPTURE(tensor.name);
    CHECK(tensor.tensor.BitEqual(trained.variables.at(tensor.name)));
  }
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SERVED_TRAINING_H_
