// Trainings that are told to end at any question, of steps and of evaluations,
// or to pause at any step, and go on until they are done: with any strategy the
// same training comes out.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "models/train/hooks/hooks.h"
#include "models/train/hooks/plateau.h"
#include "tests/support/error_text.h"
#include "tests/support/mirrored.h"
#include "tests/support/sanitizers.h"
#include "tests/support/served_training.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckSaved;
using testing::CheckVariables;
using testing::Contains;
using testing::OnDevices;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToldAtQuestion;
using testing::Trained;
using testing::TrainWith;

struct Strategy {
  int workers = 1;
  int servers = 0;
  int64_t virtual_workers = 0;
  int devices = 0;  // mirrored ones
  bool variables_on_each = false;
  int stages = 1;  // of a pipeline
};

Strategy RandomStrategy(std::mt19937& random) {
  Strategy strategy{.workers = 1 + static_cast<int>(random() % 3)};
  switch (random() % 5) {
    case 0:
      strategy.servers = 1 + static_cast<int>(random() % 2);
      break;
    case 1:
      strategy.virtual_workers = 4;
      break;
    case 2:
      strategy.devices = std::exchange(strategy.workers, 1);
      strategy.variables_on_each = random() % 2 == 0;
      break;
    case 3:
      strategy.virtual_workers = 4;
      strategy.stages = 2;
      strategy.workers = 2 + 2 * static_cast<int>(random() % 2);
  }
  return strategy;
}

std::vector<Trained> Train(const Strategy& strategy, Task task) {
  task.stages = strategy.stages;
  return testing::TrainOn(strategy.servers, strategy.workers, std::nullopt,
                          task);
}

TEST_CASE("told to end at any question, the same training goes on") {
  for (uint32_t seed = 0; seed < testing::Rounds(40u); ++seed) {
    std::mt19937 random(seed);
    const Strategy strategy = RandomStrategy(random);
    const double evaluate_every[] = {0, 0.3, 1};
    const int64_t save_every[] = {0, 1, 4};
    TrainingOptions options{.save_every = {.steps = save_every[random() % 3]},
                            .evaluate_every = evaluate_every[random() % 3],
                            .log_every = 1 + static_cast<int64_t>(random() % 4),
                            .virtual_workers = strategy.virtual_workers};
    options.session.deterministic = strategy.virtual_workers > 0;
    if (strategy.devices > 0) {
      options =
          OnDevices(strategy.devices, strategy.variables_on_each, options);
    }
    Task task{.spec =
                  [](int) {
                    TrainerSpec spec = testing::ToySpec();
                    spec.optimizer = [](const RunContext&) {
                      return optimizers::Momentum(schedules::Plateau(0.05),
                                                  0.9);
                    };
                    return spec;
                  },
              .run = testing::ToyRun(3)};
    // An epoch of ten steps, or of twelve and a half.
    if (seed % 2 == 1) task.run.batch_size = 20;
    int64_t pause = 0;  // at this step, which evaluates; 0: nowhere
    const int patience = 2 + static_cast<int>(random() % 4);
    task.add_hooks = [&](Trainer& trainer) {
      trainer.AddHook(std::make_unique<ReduceOnPlateau>(
          PlateauOptions{.patience = 0, .factor = 0.5}));
      trainer.AddHook(std::make_unique<EarlyStopping>(patience));
      if (pause > 0) trainer.AddHook(std::make_unique<StopAtStep>(pause));
    };
    task.options = [&](int) { return options; };
    CAPTURE(seed);
    CAPTURE(strategy.workers);
    CAPTURE(strategy.servers);
    CAPTURE(strategy.virtual_workers);
    CAPTURE(strategy.devices);
    CAPTURE(strategy.variables_on_each);
    CAPTURE(strategy.stages);
    const Trained whole = Train(strategy, task)[0];
    REQUIRE(whole.error == "");

    TemporaryFolder folder;
    options.log_dir = folder / "log";
    Trained part;
    // Each comes at least a step further, or ends with what it was to do.
    for (int piece = 0;; ++piece) {
      CAPTURE(piece);
      REQUIRE(piece < 40);
      const ToldAtQuestion token(2 + static_cast<int>(random() % 50));
      const auto told =
          static_cast<int>(random() % static_cast<uint32_t>(strategy.workers));
      pause = random() % 3 == 0 ? part.result.steps + 1 + random() % 6 : 0;
      task.options = [&](int rank) {
        TrainingOptions mine = options;
        if (rank == told && pause == 0) mine.stop = &token;
        return mine;
      };
      std::vector<Trained> all = Train(strategy, task);
      for (Trained& each : all) {
        // Of servers there is one copy, and rank 0 may have written its last
        // rate when another had read.
        if (strategy.servers > 0) each.variables = all[0].variables;
        if (strategy.stages > 1) {  // each has its own, rank 0 all
          for (const auto& [name, value] : each.variables) {
            CHECK(value.BitEqual(all[0].variables.at(name)));
          }
          each.variables = all[0].variables;
        }
        CheckEqual(each, all[0]);
      }
      part = all[0];
      CheckSaved(options.log_dir, part);
      const bool paused =
          pause > 0 && part.result.steps == pause && pause < whole.result.steps;
      if (paused) continue;
      if (part.result.interrupted.empty()) break;
      CHECK(Contains(part.result.interrupted, "told to"));
      CHECK(!part.result.evaluation.has_value());
    }
    CHECK(part.result.steps == whole.result.steps);
    REQUIRE(part.result.evaluation.has_value());
    CHECK(part.result.evaluation->values == whole.result.evaluation->values);
    CheckVariables(whole, part);
  }
}

}  // namespace
}  // namespace sluice
