// Trainings whose large dense variables are cut by rows over parameter servers:
// everything as without servers. A checkpoint has them as one, anyone goes on
// from it, and a server that is gone comes back.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/row_pieces.h"
#include "models/optim/contributions.h"
#include "models/train/hooks/hooks.h"
#include "tests/support/error_text.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckGoesOn;
using testing::CheckSameBits;
using testing::CheckSaved;
using testing::CheckVariables;
using testing::kAnyLead;
using testing::kSync;
using testing::Lead;
using testing::Task;
using testing::TemporaryFolder;
using testing::Trained;
using testing::TrainOn;
using testing::TrainWith;
using testing::WideTask;

int CutOnes(const Graph& graph) {
  int cut = 0;
  for (const Output& variable : graph.Variables()) {
    cut += SpreadsRows(variable.node()) ? 1 : 0;
  }
  return cut;
}

struct How {
  int servers = 2;
  Lead lead = kSync;
  std::optional<int64_t> backups = std::nullopt;
};

// With all cut that can be.
std::vector<Trained> TrainCut(const How& how, int workers, Task task) {
  std::vector<Trained> all =
      TrainOn(how.servers, workers, how.lead, std::move(task),
              [&](TrainingServers& servers) {
                servers.dense_from = 1;
                servers.backups = how.backups;
              });
  for (Trained& each : all) {
    std::erase_if(each.variables, [](const auto& variable) {
      return IsContribution(variable.first);
    });
  }
  return all;
}

TEST_CASE("one worker trains, evaluates and saves as without servers") {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    TemporaryFolder folder;
    Task task = WideTask(seed, 2);
    // Accumulation and loss scaling are for steps that are done together, which
    // those of one worker are.
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
    int cut = 0;
    task.after_step = [&](int, TrainingRun& run) {
      cut = CutOnes(run.graph());
      // They are no tables: a snapshot has them.
      REQUIRE(run.graph().Find("fc2/weights") != nullptr);
      CHECK(!run.IsTable("fc2/weights"));
      if (run.snapshot() == nullptr) return;
      CHECK(std::any_of(run.snapshot()->tensors.begin(),
                        run.snapshot()->tensors.end(),
                        [](const NamedTensor& tensor) {
                          return tensor.name == "fc2/weights" &&
                                 tensor.tensor.shape() == Shape{21, 13};
                        }));
    };
    const Trained served =
        TrainCut({.servers = 2 + static_cast<int>(seed % 3)}, 1, task)[0];
    CHECK(cut >= 2);
    CheckSameBits(served, alone);
    CheckSaved(folder / "served", served);
  }
}

TEST_CASE("workers in step have the bits of a ring") {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const int workers = 2 + static_cast<int>(seed % 2);
    Task task = WideTask(seed, 2);
    task.options = [](int) {
      TrainingOptions options;
      options.session.deterministic = true;
      return options;
    };
    const std::vector<Trained> ring = TrainWith(workers, task);
    task.after_step = [](int, TrainingRun& run) {
      CHECK(CutOnes(run.graph()) >= 2);
    };
    const How how = {.servers = 2 + static_cast<int>(seed % 3)};
    for (const Trained& each : TrainCut(how, workers, task)) {
      CheckSameBits(each, ring[0]);
    }
  }
}

TEST_CASE("two that are each other's backups, waited for, have a ring's bits") {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    Task task = WideTask(seed, 1);
    const std::vector<Trained> ring = TrainWith(2, task);
    int cut = 0;
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank == 0) cut = CutOnes(run.graph());
    };
    const How how = {.servers = 2 + static_cast<int>(seed % 2), .backups = 0};
    for (const Trained& each : TrainCut(how, 2, task)) {
      CheckEqual(each, ring[0]);
    }
    if (seed % 4 == 2) CHECK(cut >= 2);  // Adam
  }
}

TEST_CASE("any number of servers goes on where another stopped") {
  std::mt19937 random(4);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    CheckGoesOn(WideTask(seed, 3), random, [&](const Task& task) {
      const int servers = static_cast<int>(random() % 5);
      CAPTURE(servers);
      return TrainCut({.servers = servers}, 1, task)[0];
    });
  }
}

TEST_CASE("workers with speeds of their own save what all have done") {
  for (int trial = 0; trial < 4; ++trial) {
    CAPTURE(trial);
    TemporaryFolder folder;
    const int workers = 2 + trial % 2;
    Task task = WideTask(static_cast<uint32_t>(2 * trial % 4), 4);
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "log",
                             .save_every = {.steps = 5},
                             .evaluate_every = 0.5};
    };
    const How how = {.servers = 2 + trial % 2,
                     .lead = trial % 2 == 0 ? Lead(kAnyLead) : Lead(1)};
    const std::vector<Trained> all = TrainCut(how, workers, task);
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CheckVariables(each, all[0]);
      CHECK(each.result.evaluation->values == all[0].result.evaluation->values);
    }
    CheckSaved(folder / "log", all[0]);
    // One process finds the same when it evaluates that.
    task.run.steps = all[0].result.steps;
    const Trained alone = TrainWith(1, task)[0];
    CheckVariables(alone, all[0]);
    REQUIRE(alone.result.evaluation.has_value());
    CHECK(alone.result.evaluation->values[0].second ==
          doctest::Approx(all[0].result.evaluation->values[0].second));
  }
}

}  // namespace
}  // namespace sluice
