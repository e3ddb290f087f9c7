// Trainings of tables whose rows are on parameter servers, and in no worker's
// memory: what one process trains, evaluates and saves; anyone goes on from it.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "models/train/hooks/hooks.h"
#include "tests/support/error_text.h"
#include "tests/support/sentences.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckGoesOn;
using testing::CheckSaved;
using testing::CheckVariables;
using testing::Contains;
using testing::kAnyLead;
using testing::kSync;
using testing::kWords;
using testing::Lead;
using testing::OfRows;
using testing::Reader;
using testing::Sentences;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainOn;
using testing::TrainWith;

// Bytes of the table alone.
constexpr size_t kTableBytes = kWords * 4 * sizeof(float);

Task ReaderTask(int optimizer, double epochs) {
  Task task;
  task.run = ToyRun(epochs);
  task.run.batch_size = 12;
  task.spec = [optimizer](int) {
    TrainerSpec spec = ToySpec();
    spec.input = Sentences;
    spec.model = Reader;
    spec.optimizer = [optimizer](const RunContext&) {
      return OfRows(optimizer);
    };
    return spec;
  };
  return task;
}

// With tables cut over so many servers.
std::vector<Trained> TrainCut(int servers, int workers, Lead lead, Task task) {
  return TrainOn(servers, workers, lead, std::move(task),
                 [](TrainingServers& all) { all.cut_from = 1; });
}

TEST_CASE("one worker trains, evaluates and saves as without servers") {
  for (int trial = 0; trial < 12; ++trial) {
    CAPTURE(trial);
    TemporaryFolder folder;
    Task task = ReaderTask(trial, 2);
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "alone",
                             .save_every = {.steps = 7},
                             .evaluate_every = 0.7};
    };
    const Trained alone = TrainWith(1, task)[0];
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "served",
                             .save_every = {.steps = 7},
                             .evaluate_every = 0.7};
    };
    bool cut = false;
    task.after_step = [&](int, TrainingRun& run) {
      const Session& session = std::as_const(run).session();
      CHECK(session.variable_bytes() < kTableBytes);
      cut = run.IsTable("words/table");
      if (run.snapshot() == nullptr) return;
      for (const NamedTensor& tensor : run.snapshot()->tensors) {
        CHECK(!tensor.name.starts_with("words/table"));
      }
    };
    const Lead leads[] = {kSync, Lead(kAnyLead), Lead(2)};
    const Trained served =
        TrainCut(1 + trial % 3, 1, leads[trial / 4], task)[0];
    CHECK(cut);
    CheckEqual(served, alone);
    REQUIRE(served.result.evaluation.has_value());
    CHECK(served.result.evaluation->values == alone.result.evaluation->values);
    CheckSaved(folder / "served", served);
    // All that were kept, by their steps.
    const auto ours = CheckpointManager::ForReading(folder / "served");
    const auto theirs = CheckpointManager::ForReading(folder / "alone");
    REQUIRE(ours.Steps().ValueOrThrow() == theirs.Steps().ValueOrThrow());
    CHECK(ours.BestStep().ValueOrThrow() == theirs.BestStep().ValueOrThrow());
    for (const int64_t step : ours.Steps().ValueOrThrow()) {
      const Checkpoint a = ours.RestoreStep(step).ValueOrThrow().checkpoint;
      const Checkpoint b = theirs.RestoreStep(step).ValueOrThrow().checkpoint;
      REQUIRE(a.tensors.size() == b.tensors.size());
      CHECK(a.state.metric == b.state.metric);
      for (const NamedTensor& mine : a.tensors) {
        for (const NamedTensor& other : b.tensors) {
          if (mine.name == other.name) {
            CHECK(mine.tensor.BitEqual(other.tensor));
          }
        }
      }
    }
  }
}

// Where an evaluation would look for the rows elsewhere.
TEST_CASE("variables on servers go into no container") {
  Task task = ReaderTask(0, 1);
  task.options = [](int) {
    return TrainingOptions{.session = {.container = "mine"}};
  };
  const Trained refused = TrainCut(1, 1, kSync, task)[0];
  CHECK(Contains(refused.error, "they go into no container, got 'mine'"));
}

TEST_CASE("workers in step have the bits of a ring") {
  for (int trial = 0; trial < 8; ++trial) {
    CAPTURE(trial);
    const int workers = 2 + trial % 2;
    Task task = ReaderTask(trial, 2);
    const std::vector<Trained> ring = TrainWith(workers, task);
    task.after_step = [](int, TrainingRun& run) {
      CHECK(run.IsTable("words/table"));
      CHECK(std::as_const(run).session().variable_bytes() < kTableBytes);
    };
    const std::vector<Trained> served =
        TrainCut(1 + trial % 3, workers, kSync, task);
    for (const Trained& each : served) CheckEqual(each, ring[0]);
    REQUIRE(served[0].result.evaluation.has_value());
    CHECK(served[0].result.evaluation->values ==
          ring[0].result.evaluation->values);
  }
}

TEST_CASE("any number of servers goes on where another stopped") {
  std::mt19937 random(4);
  for (int trial = 0; trial < 6; ++trial) {
    CAPTURE(trial);
    CheckGoesOn(ReaderTask(trial, 3), random, [&](const Task& task) {
      const int servers = static_cast<int>(random() % 4);
      CAPTURE(servers);
      return TrainCut(servers, 1, random() % 2 == 0 ? kSync : Lead(kAnyLead),
                      task)[0];
    });
  }
}

TEST_CASE("workers with speeds of their own save what all have done") {
  std::mt19937 random(8);
  for (int trial = 0; trial < 6; ++trial) {
    CAPTURE(trial);
    TemporaryFolder folder;
    const int workers = 2 + trial % 2;
    Task task = ReaderTask(trial, 6);
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "log",
                             .save_every = {.steps = 5},
                             .evaluate_every = 0.5};
    };
    task.after_step = [&](int rank, TrainingRun&) {
      thread_local std::mt19937 mine(static_cast<uint32_t>(16 * trial + rank));
      if (mine() % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(mine() % 4));
      }
    };
    const std::vector<Trained> all =
        TrainCut(1 + trial % 3, workers,
                 trial % 2 == 0 ? Lead(kAnyLead) : Lead(1), task);
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CheckVariables(each, all[0]);
      CHECK(each.result.evaluation->values == all[0].result.evaluation->values);
    }
    CheckSaved(folder / "log", all[0]);
    // One process finds the same when it evaluates that.
    task.run.steps = all[0].result.steps;
    task.after_step = nullptr;
    const Trained alone = TrainWith(1, task)[0];
    CheckVariables(alone, all[0]);
  }
}

TEST_CASE(
    "a table that is not finite is not saved, and one that does not fit") {
  TemporaryFolder folder;
  Task task = ReaderTask(0, 2);
  task.options = [&](int) {
    return TrainingOptions{.log_dir = folder / "log",
                           .save_every = {.steps = 4},
                           .evaluate_every = 0};
  };
  task.after_step = [&](int, TrainingRun& run) {
    if (run.step() != 10) return;
    Tensor row = Tensor::Full(DType::kFloat32, {1, 4},
                              std::numeric_limits<double>::infinity());
    run.session().WriteRows(run.graph().Get("words/table"),
                            testing::UnreadWord(), row);
  };
  const Trained trained = TrainCut(2, 1, kSync, task)[0];
  CHECK(trained.error == "");
  const auto saved = CheckpointManager::ForReading(folder / "log");
  CHECK(saved.Steps().ValueOrThrow() == std::vector<int64_t>{4, 8});
  // A model with another table.
  task.after_step = nullptr;
  task.spec = [](int) {
    TrainerSpec spec = ToySpec();
    spec.input = Sentences;
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      const Output more = layers::Embedding(
          scope / "words", in["words"], {.size = kWords + 8, .dimensions = 4});
      (void)run;
      const Output logits =
          layers::Dense(scope / "logits", layers::Flatten(more), {.units = 3});
      return ModelSpec{
          .loss = losses::SparseSoftmaxCrossEntropy(logits, in["label"]),
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
    };
    spec.optimizer = [](const RunContext&) { return OfRows(0); };
    return spec;
  };
  const std::string error = TrainCut(2, 1, kSync, task)[0].error;
  CHECK(Contains(error, "does not fit this model"));
  CHECK(Contains(error, "words/table"));
  CHECK(Contains(error, "nothing was changed"));
}

}  // namespace
}  // namespace sluice
