// Trainings whose variables are on parameter servers: by one worker and by
// workers in step the bits of those without, and by workers with speeds of
// their own no example lost and no lead beyond what was said.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "dist/servers/admission.h"
#include "dist/servers/pace.h"
#include "dist/servers/server.h"
#include "models/train/hooks/hooks.h"
#include "models/train/hooks/plateau.h"
#include "models/train/hooks/scalar_log.h"
#include "tests/support/centred_model.h"
#include "tests/support/error_text.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::CheckSaved;
using testing::CheckVariables;
using testing::Contains;
using testing::JobServers;
using testing::kAnyLead;
using testing::kSync;
using testing::Lead;
using testing::PlainSpec;
using testing::RandomOptimizer;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToldAtQuestion;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainOn;
using testing::TrainWith;

TEST_CASE("one worker has the bits of a training without servers") {
  for (uint32_t seed = 0; seed < 9; ++seed) {
    CAPTURE(seed);
    Task task{.spec =
                  [seed](int) {
                    TrainerSpec spec = ToySpec();
                    spec.optimizer = [seed](const RunContext&) {
                      std::mt19937 same(seed);
                      return RandomOptimizer(same);
                    };
                    return spec;
                  },
              .run = ToyRun(2)};
    const Trained alone = TrainWith(1, task)[0];
    const Lead leads[] = {kSync, kAnyLead, 3};
    CheckEqual(
        TrainOn(1 + static_cast<int>(seed) % 3, 1, leads[seed / 3], task)[0],
        alone);
  }
}

TEST_CASE("workers in step have the bits of a ring, on any number of servers") {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const int workers = 2 + static_cast<int>(seed % 2);
    Task task{.spec =
                  [seed](int) {
                    TrainerSpec spec = ToySpec();
                    spec.optimizer = [seed](const RunContext&) {
                      std::mt19937 same(seed);
                      return RandomOptimizer(same);
                    };
                    // Half of them end with a batch that has not something for
                    // all.
                    if (seed % 4 >= 2) spec.input = testing::PointsOnce;
                    return spec;
                  },
              .run = ToyRun(2)};
    const std::vector<Trained> ring = TrainWith(workers, task);
    const std::vector<Trained> served =
        TrainOn(1 + static_cast<int>(seed) % 3, workers, kSync, task);
    for (const Trained& each : served) CheckEqual(each, ring[0]);
    REQUIRE(served[0].result.evaluation.has_value());
    CHECK(served[0].result.evaluation->values ==
          ring[0].result.evaluation->values);
  }
}

// Whether they do is not left to the clock: the slow one goes on only when the
// fast one is ahead by as much as it may be.
TEST_CASE("the fast one goes ahead by the lead, and no further") {
  for (const int64_t lead : {int64_t{0}, int64_t{1}, int64_t{3}, kAnyLead}) {
    CAPTURE(lead);
    constexpr int kWorkers = 3;
    constexpr int64_t kRounds = 12;
    const int64_t ahead = std::min(lead, kRounds - 2) + 1;
    std::atomic<int64_t> done[kWorkers] = {};
    std::atomic<int64_t> most{0};
    Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
    task.run.steps = kWorkers * kRounds;
    task.options = [](int) { return TrainingOptions{.evaluate_every = 0}; };
    task.after_step = [&](int rank, TrainingRun& run) {
      const int64_t mine = ++done[rank];
      CHECK(run.step() == kWorkers * mine);
      int64_t fewest = kRounds;
      for (const auto& each : done) fewest = std::min(fewest, each.load());
      most = std::max(most.load(), mine - fewest);
      // Up to lead + 1, as others' last steps may not have been counted.
      if (lead != kAnyLead) CHECK(mine - fewest <= lead + 1);
      if (rank != 1) return;
      while (done[0] < std::min(mine - 1 + ahead, kRounds)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    const std::vector<Trained> all = TrainOn(2, kWorkers, lead, task);
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CHECK(each.result.steps == kWorkers * kRounds);
    }
    // Each update was counted, and none was lost.
    CHECK(all[0].variables.at("global_step").At(0) == kWorkers * kRounds);
    for (const Trained& each : all) CheckVariables(each, all[0]);
  }
}

// What the workers were given, by number: of a pass with other numbers of
// workers, stopped in between.
TEST_CASE("no example is lost or seen twice, whoever goes on") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 6; ++trial) {
    CAPTURE(trial);
    TemporaryFolder folder;
    std::mutex mutex;
    std::map<int64_t, int> seen;
    constexpr int64_t kExamples = 120;
    Task task{.spec =
                  [](int) {
                    TrainerSpec spec = PlainSpec();
                    spec.input = [](const RunContext& run) {
                      Tensor x(DType::kFloat32, {kExamples, 3});
                      Tensor label(DType::kInt64, {kExamples});
                      for (int64_t i = 0; i < kExamples; ++i) {
                        label.data<int64_t>()[i] = i % 3;
                        for (int64_t j = 0; j < 3; ++j) {
                          x.data<float>()[3 * i + j] = static_cast<float>(i);
                        }
                      }
                      Dataset all =
                          datasets::FromTensors({{"x", x}, {"label", label}});
                      if (run.training()) {
                        all = all.Shuffle(kExamples, run.seed).Repeat();
                      }
                      return all.Batch(run.batch_size);
                    };
                    return spec;
                  },
              .run = ToyRun(1)};
    task.run.batch_size = 5;
    task.after_step = [&](int, TrainingRun& run) {
      const std::lock_guard lock(mutex);
      for (int64_t i = 0; i < RowsOf(run.batch()); ++i) {
        ++seen[static_cast<int64_t>(run.batch()["x"].At(3 * i))];
      }
    };
    int64_t stop = 0;
    task.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "log",
                             .save_every = {.steps = 5},
                             .evaluate_every = 0.3};
    };
    task.add_hooks = [&](Trainer& trainer) {
      trainer.AddHook(std::make_unique<StopAtStep>(stop));
    };
    Trained last;
    for (const int64_t until : {int64_t{6}, int64_t{12}, int64_t{24}}) {
      stop = until;
      // Which all divide the steps.
      const int workers[] = {1, 2, 3};
      const int n = workers[random() % 3];
      CAPTURE(n);
      const Lead lead = random() % 2 == 0 ? Lead(kAnyLead) : Lead(1);
      last = TrainOn(1 + static_cast<int>(random() % 2), n, lead, task)[0];
      REQUIRE(last.error == "");
      CHECK(last.result.steps == until);
    }
    CHECK(seen.size() == kExamples);
    for (const auto& [example, times] : seen) {
      CAPTURE(example);
      CHECK(times == 1);
    }
    // One process, without servers, finds the same.
    const Trained alone = TrainWith(1, task)[0];
    CHECK(alone.result.steps == 24);
    CheckVariables(alone, last);
  }
}

TEST_CASE("workers at random speeds meet to save, evaluate, lower and stop") {
  std::mt19937 random(6);
  for (uint32_t seed = 0; seed < 18; ++seed) {
    CAPTURE(seed);
    TemporaryFolder folder;
    const int workers = 2 + static_cast<int>(seed % 3);
    const ToldAtQuestion token(30 + static_cast<int>(random() % 60));
    Task task{.spec =
                  [](int) {
                    TrainerSpec spec = ToySpec();
                    spec.optimizer = [](const RunContext&) {
                      return optimizers::Momentum(schedules::Plateau(0.05),
                                                  0.9);
                    };
                    return spec;
                  },
              .run = ToyRun(1000)};
    task.options = [&](int rank) {
      TrainingOptions options{.log_dir = folder / "log",
                              .save_every = {.steps = 3},
                              .evaluate_every = 0.5,
                              .log_every = 2};
      if (rank == 1) options.stop = &token;
      return options;
    };
    task.add_hooks = [](Trainer& trainer) {
      trainer.AddHook(std::make_unique<ReduceOnPlateau>(
          PlateauOptions{.patience = 0, .factor = 0.5}));
    };
    task.after_step = [&](int rank, TrainingRun&) {
      thread_local std::mt19937 mine(seed * 16 + static_cast<uint32_t>(rank));
      if (mine() % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(mine() % 6));
      }
    };
    const Lead lead = seed % 2 == 0 ? Lead(kAnyLead) : Lead(2);
    const std::vector<Trained> all = TrainOn(2, workers, lead, task);
    for (const Trained& each : all) {
      REQUIRE(each.error == "");
      CHECK(each.result.steps == all[0].result.steps);
      CHECK(Contains(each.result.interrupted, "told to"));
      CheckVariables(each, all[0]);
    }
    CHECK(all[0].variables.at("global_step").At(0) == all[0].result.steps);
    CheckSaved(folder / "log", all[0]);
  }
}

// Due at a step that rounds of three go past.
TEST_CASE(
    "an evaluation that a training was stopped before comes first after") {
  class Told final : public StopToken {
   public:
    std::string Reason() const override { return told ? "told to" : ""; }
    std::atomic<bool> told = false;
  };
  class Note final : public Hook {
   public:
    explicit Note(std::vector<int64_t>& steps) : steps_(steps) {}
    void AfterEvaluation(TrainingRun& run, const Evaluation&) override {
      if (run.workers().leads()) steps_.push_back(run.step());
    }

   private:
    std::vector<int64_t>& steps_;
  };
  TemporaryFolder folder;
  Told told;
  std::vector<int64_t> evaluated;
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(2)};
  task.run.batch_size = 25;  // of 250: due at 5, 10 and so on
  task.options = [&](int) {
    return TrainingOptions{
        .log_dir = folder / "log", .evaluate_every = 0.5, .stop = &told};
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<Note>(evaluated));
  };
  task.after_step = [&](int, TrainingRun& run) {
    if (run.step() == 6) told.told = true;
  };
  for (const Trained& each : TrainOn(1, 3, kAnyLead, task)) {
    CHECK(each.error == "");
    CHECK(each.result.steps == 6);
  }
  CHECK(evaluated.empty());
  task.after_step = nullptr;
  told.told = false;
  for (const Trained& each : TrainOn(1, 3, kAnyLead, task)) {
    REQUIRE(each.error == "");
  }
  CHECK(evaluated == std::vector<int64_t>{6, 12, 15, 21});
}

// Of the second batch, of one example, rank 0 has nothing.
TEST_CASE("figures that a step does not have are not written for it") {
  TemporaryFolder folder;
  Task task{.spec =
                [](int) {
                  TrainerSpec spec = PlainSpec();
                  spec.optimizer = [](const RunContext&) {
                    return optimizers::Sgd(0.1);
                  };
                  spec.input = [](const RunContext& run) {
                    return datasets::FromTensors(
                               {{"x", Tensor::Full(DType::kFloat32, {5, 3}, 1)},
                                {"label", Tensor::Zeros(DType::kInt64, {5})}})
                        .PaddedBatch(run.batch_size);
                  };
                  return spec;
                },
            .run = ToyRun(1)};
  task.run.batch_size = 2;
  task.options = [&](int) {
    return TrainingOptions{
        .log_dir = folder / "log", .evaluate_every = 0, .log_every = 1};
  };
  for (const Trained& each : TrainOn(1, 2, kAnyLead, task)) {
    REQUIRE(each.error == "");
    CHECK(each.result.steps == 4);
  }
  std::map<int64_t, std::set<std::string>> names;
  for (const ScalarRow& row : ReadScalars(folder / "log").ValueOrThrow()) {
    if (row.set == "train") names[row.step].insert(row.name);
  }
  for (const char* name :
       {"loss", "learning_rate", "accuracy", "f1", "examples_per_second"}) {
    CAPTURE(name);
    CHECK(names[2].contains(name));
    const bool of_any = std::string(name) == "examples_per_second";
    CHECK(names[4].contains(name) == of_any);
  }
}

// As workers that are started again on a host whose clock is an hour behind.
TEST_CASE("servers that stayed take workers whose clock is behind") {
  for (const bool backed : {false, true}) {
    CAPTURE(backed);
    JobServers job(1);
    const auto clock = std::chrono::system_clock::now().time_since_epoch();
    const int64_t era = std::chrono::duration_cast<std::chrono::microseconds>(
                            clock + std::chrono::hours(1))
                            .count();
    const auto ask = [&](const std::string& text) {
      return job.For(5, kSync).cluster->Ask(dist::ServerName(0), text);
    };
    CHECK(ask(std::string(dist::kAskEra)).ValueOrThrow() == "0");
    const std::string before =
        backed ? dist::TextOf(dist::AdmissionCall{era, 2, 1, {}})
               : dist::TextOf(dist::PaceCall{era, 2, 1, {}});
    REQUIRE(ask(before).ok());
    CHECK(ask(std::string(dist::kAskEra)).ValueOrThrow() ==
          std::to_string(era));
    Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
    task.options = [&](int rank) {
      TrainingOptions options;
      options.servers = job.For(rank, backed ? kSync : Lead(1));
      if (backed) options.servers.backups = 1;
      return options;
    };
    for (const Trained& each : TrainWith(2, task)) {
      CHECK(each.error == "");
      CHECK(each.result.steps == 10);
    }
  }
}

TEST_CASE("what cannot be is said before the first step") {
  const auto error = [](Lead lead, const Task& task) {
    const std::vector<Trained> all = TrainOn(1, 2, lead, task);
    for (const Trained& each : all) CHECK(each.losses.empty());
    return all[0].error;
  };
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
  const auto with = [&](const std::function<Optimizer()>& optimizer) {
    Task other = task;
    other.spec = [optimizer](int) {
      TrainerSpec spec = PlainSpec();
      spec.optimizer = [optimizer](const RunContext&) { return optimizer(); };
      return spec;
    };
    return other;
  };
  CHECK(Contains(error(3, with([] {
                         return optimizers::Sgd(0.1).With(
                             gradients::Accumulate(2));
                       })),
                 "gradient accumulation is for workers that do each step "
                 "together"));
  CHECK(Contains(error(kAnyLead, with([] {
                         return optimizers::Sgd(0.1).WithLossScaling();
                       })),
                 "loss scaling (fp16) is for workers"));
  Task meets = task;
  meets.spec = [](int) {
    TrainerSpec spec = PlainSpec();
    spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
      ModelSpec model = testing::Network(scope, in, run);
      model.loss = AllReduce(model.loss, Reduction::kMean, "met");
      return model;
    };
    return spec;
  };
  CHECK(Contains(error(kAnyLead, meets),
                 "'met' is for workers that do each step together"));
  Task moved = task;
  moved.spec = [](int) { return testing::CentredSpec(); };
  CHECK(Contains(error(kSync, moved),
                 "updates 'centre', and the loss is of what it wrote"));
  moved.options = [](int) { return TrainingOptions{.virtual_workers = 2}; };
  CHECK(Contains(error(kSync, moved), "not where workers share variables"));
  task.options = [](int) { return TrainingOptions{.virtual_workers = 2}; };
  CHECK(Contains(error(kAnyLead, task), "virtual workers do each step"));
}

TEST_CASE("all must want the same consistency") {
  JobServers job(1);
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1)};
  task.options = [&](int rank) {
    TrainingOptions options;
    options.servers = job.For(rank, rank == 0 ? Lead(3) : Lead(4));
    return options;
  };
  for (const Trained& each : TrainWith(2, task)) {
    CHECK(Contains(each.error, "use of parameter servers of rank"));
  }
}

TEST_CASE("a loss that is no number ends all, and is not looked for again") {
  for (const Lead lead : {kSync, Lead(kAnyLead)}) {
    Task task{.spec = [](int) { return testing::TrappedSpec(); },
              .run = ToyRun(20)};
    task.options = [](int) { return TrainingOptions{.log_every = 5}; };
    task.tells_failure = true;
    const std::vector<Trained> all = TrainOn(1, 2, lead, task);
    for (const Trained& each : all) CHECK(each.error != "");
    CHECK(std::any_of(all.begin(), all.end(), [](const Trained& each) {
      return Contains(each.error, "the loss is") &&
             Contains(each.error, "not run again");
    }));
  }
}

TEST_CASE("a worker that fails ends the others, which name it") {
  for (const Lead lead : {kSync, Lead(kAnyLead), Lead(2)}) {
    Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1000)};
    task.after_step = [](int rank, TrainingRun& run) {
      if (rank == 1 && run.step() >= 12) {
        throw Error(Code::kUnavailable, "it has had enough");
      }
    };
    task.tells_failure = true;
    const std::vector<Trained> all = TrainOn(1, 3, lead, task);
    CHECK(Contains(all[1].error, "had enough"));
    for (const int rank : {0, 2}) {
      CAPTURE(all[rank].error);
      CHECK(Contains(all[rank].error, "rank 1 of 3 failed"));
    }
  }
}

TEST_CASE("a server that is gone is named, and rank 0 saves what it has") {
  for (const Lead lead : {kSync, Lead(kAnyLead), Lead(2)}) {
    TemporaryFolder folder;
    JobServers job(2);
    Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(1000)};
    task.options = [&](int rank) {
      TrainingOptions options{.log_dir = folder / "log", .log_every = 4};
      options.servers = job.For(rank, lead);
      return options;
    };
    task.tells_failure = true;
    std::once_flag ends;
    task.after_step = [&](int rank, TrainingRun& run) {
      if (rank == 0 && run.step() >= 73) {
        std::call_once(ends, [&] { job.End(1); });
      }
    };
    const std::vector<Trained> all = TrainWith(2, task);
    CHECK(Contains(all[0].error, "/job:ps/task:1"));
    for (const Trained& each : all) CHECK(each.error != "");
    const auto saved = CheckpointManager::ForReading(folder / "log")
                           .RestoreNewest()
                           .ValueOrThrow();
    REQUIRE(saved);
    // Workers in step keep a state of every log_every steps.
    CHECK(saved->checkpoint.state.step >= (lead ? 25 : 64));
  }
}

}  // namespace
}  // namespace sluice
