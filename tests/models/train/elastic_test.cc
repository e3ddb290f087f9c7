// Trainings whose workers die at any moment, and others come: they go on with
// those that are left, and no example is lost or seen twice.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "io/checkpoints/checkpoint.h"
#include "tests/support/await.h"
#include "tests/support/elastic_job.h"
#include "tests/support/error_text.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckSaved;
using testing::CheckVariables;
using testing::Contains;
using testing::ElasticJob;
using testing::Mortal;
using testing::PlainSpec;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::Trained;

constexpr int64_t kExamples = 120;
constexpr int64_t kBatch = 5;
constexpr int kEpochs = 2;
constexpr int64_t kSteps = kEpochs * kExamples / kBatch;

Dataset Numbered(const RunContext& run) {
  Tensor x(DType::kFloat32, {kExamples, 3});
  Tensor label(DType::kInt64, {kExamples}), id(DType::kInt64, {kExamples});
  for (int64_t i = 0; i < kExamples; ++i) {
    id.data<int64_t>()[i] = i;
    label.data<int64_t>()[i] = i % 3;
    for (int64_t j = 0; j < 3; ++j) {
      x.data<float>()[3 * i + j] = static_cast<float>((i * (j + 2)) % 17) / 17;
    }
  }
  Dataset all = datasets::FromTensors({{"x", x}, {"label", label}, {"id", id}});
  if (run.training()) all = all.Shuffle(kExamples, run.seed).Repeat();
  return all.Batch(run.batch_size);
}

// Counts, as a moving statistic, how often each example was trained on: what
// the state of a training holds, whoever had which part of which batch.
TrainerSpec CountingSpec() {
  TrainerSpec spec = PlainSpec();
  spec.input = Numbered;
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    const Output seen = scope.graph().Variable("seen", Zeros({kExamples}),
                                               {.trainable = false});
    if (run.training()) {
      const Output counts = Mean(OneHot(in["id"], kExamples), {0}) *
                            static_cast<double>(run.batch_size);
      scope.graph().AddUpdate(Assign(seen, seen + counts));
    }
    return testing::Plain(scope, in, run);
  };
  return spec;
}

struct Plan {
  int size = 2, least = 1, restarts = 0;
  int64_t virtual_workers = 0;
  std::string log_dir;
  std::string trace;       // of two of the first steps; empty: none
  std::vector<int> fates;  // of each process that is started; then none
  unsigned optimizer = 0;  // which; 0: that of the toy
  // So many come after a few steps, and when they are in the first dies.
  int comers = 0;
  // After this step the first dies, and all that was saved goes with it; 0:
  // nowhere.
  int64_t lost_after = 0;
  bool then_fails = false;  // evaluations do, from then on
  int stranger = -1;        // the process that has another seed
};

struct Outcome {
  std::map<int, Trained> alive;  // those that did not die, by process
  int died = 0, processes = 0;
  std::string said;
};

TrainingOptions OptionsOf(const Plan& plan) {
  TrainingOptions options{.log_dir = plan.log_dir,
                          .save_every = {.steps = 5},
                          .evaluate_every = 0.4,
                          .log_every = 3};
  options.virtual_workers = plan.virtual_workers;
  options.session.deterministic = plan.virtual_workers > 0;
  return options;
}

// Evaluations cannot read a batch while it `fails`.
TrainerSpec WithFailing(TrainerSpec spec, const std::atomic<bool>& fails) {
  spec.input = [input = spec.input, &fails](const RunContext& run) {
    const Dataset all = input(run);
    if (run.training()) return all;
    return all.Map([&fails](Example& batch) {
      if (fails && RowsOf(batch) > 1) {
        throw Error(Code::kNotFound, "no test data");
      }
    });
  };
  return spec;
}

Trained Train(const Plan& plan, const TrainingOptions& options, int process,
              const testing::OnStep& after_step = {},
              const std::atomic<bool>& fails = false) {
  Trained mine;
  try {
    RunContext run = ToyRun(kEpochs);
    run.batch_size = kBatch;
    if (process == plan.stranger) ++run.seed;
    TrainerSpec spec = WithFailing(CountingSpec(), fails);
    if (plan.optimizer > 0) {
      spec.optimizer = [seed = plan.optimizer](const RunContext&) {
        std::mt19937 random(seed);
        return testing::RandomOptimizer(random);
      };
    }
    Trainer trainer(spec, run, options);
    if (!plan.trace.empty()) {
      trainer.AddHook(std::make_unique<Profile>(2, 3, plan.trace));
    }
    trainer.AddHook(
        std::make_unique<testing::Watch>(process, after_step, &mine));
    mine.result = trainer.Train();
  } catch (const Error& error) {
    mine.error = error.what();
  }
  return mine;
}

// As where the host of who had it is gone.
void LoseCheckpoints(const std::string& log_dir) {
  const auto saved = CheckpointManager::ForReading(log_dir);
  for (const int64_t step : saved.Steps().ValueOrThrow()) {
    std::filesystem::remove(saved.PathOf(step));
  }
}

Outcome Run(const Plan& plan) {
  const dist::testing::Watchdog watchdog;
  Outcome outcome;
  std::mutex mutex;
  std::atomic<bool> fails = false;
  ElasticJob* running = nullptr;
  ElasticJob job(
      plan.size, plan.least, plan.restarts,
      [&](int process) {
        const auto i = static_cast<size_t>(process);
        return i < plan.fates.size() ? plan.fates[i] : 0;
      },
      [&](int process, const std::shared_ptr<Mortal>& group) {
        TrainingOptions options = OptionsOf(plan);
        options.session.collective = group;
        bool grown = false;
        const auto after_step = [&](int, TrainingRun& run) {
          if (process != 0) return;
          if (run.step() == plan.lost_after) group->Die();
          if (plan.comers == 0) return;
          if (!grown && run.step() == 5) {
            grown = true;
            running->Grow(plan.comers);
            // They have come to meet: the next step is theirs, too.
            testing::AwaitTrue([&] { return group->called(); });
          }
          if (run.step() == 11) group->Die();
        };
        Trained mine = Train(plan, options, process, after_step, fails);
        if (group->died() && plan.lost_after > 0) {
          LoseCheckpoints(plan.log_dir);
          fails = plan.then_fails;
        }
        const std::lock_guard lock(mutex);
        if (!group->died()) outcome.alive[process] = std::move(mine);
      });
  running = &job;
  job.Run();
  outcome.died = job.died();
  outcome.processes = job.processes();
  outcome.said = job.said();
  return outcome;
}

void CheckCounted(const Trained& trained) {
  const Tensor& seen = trained.variables.at("seen");
  for (int64_t i = 0; i < kExamples; ++i) {
    CAPTURE(i);
    CHECK(seen.At(i) == doctest::Approx(kEpochs).epsilon(1e-3));
  }
  CHECK(trained.variables.at("global_step").At(0) == kSteps);
}

TEST_CASE("whoever dies and whenever, all is trained on once") {
  std::mt19937 random(11);
  int died = 0, came = 0;
  for (int trial = 0; trial < 24; ++trial) {
    CAPTURE(trial);
    TemporaryFolder folder;
    Plan plan;
    plan.size = 2 + trial % 3;
    plan.least = 1 + static_cast<int>(random() % 2);
    plan.restarts = static_cast<int>(random() % 3);
    if (trial / 3 % 2 == 0) plan.virtual_workers = 4;
    if (random() % 3 > 0) plan.log_dir = folder / "log";
    int deaths = plan.size - plan.least + plan.restarts;
    for (int i = 0; i < plan.size + plan.restarts; ++i) {
      // Some while they begin, others anywhere.
      const int within = random() % 4 == 0 ? 40 : 500;
      const int call = 1 + static_cast<int>(random() % within);
      const bool dies = deaths > 0 && random() % 3 > 0;
      if (dies) --deaths;
      // Of those that do not die half miss something once.
      const bool misses = !dies && random() % 2 == 0;
      plan.fates.push_back(dies ? call : misses ? -call : 0);
    }
    plan.optimizer = static_cast<unsigned>(trial) / 2;
    Trained undisturbed;
    if (plan.virtual_workers > 0) {
      Plan alone = plan;
      alone.log_dir.clear();
      undisturbed = Train(alone, OptionsOf(alone), 0);
      REQUIRE(undisturbed.error == "");
      CheckCounted(undisturbed);
    }
    const Outcome outcome = Run(plan);
    CAPTURE(outcome.said);
    died += outcome.died;
    came += outcome.processes - plan.size;
    REQUIRE(!outcome.alive.empty());
    const Trained* first = nullptr;
    for (const auto& [process, each] : outcome.alive) {
      CAPTURE(process);
      REQUIRE(each.error == "");
      if (first == nullptr) first = &each;
      CHECK(each.result.steps == kSteps);
      CheckCounted(each);
      CheckVariables(each, *first);
      if (plan.virtual_workers == 0) continue;
      CheckVariables(each, undisturbed);
      CHECK(each.result.evaluation->values ==
            undisturbed.result.evaluation->values);
    }
    if (!plan.log_dir.empty()) CheckSaved(plan.log_dir, *first);
  }
  CHECK(died > 20);
  CHECK(came > 5);
}

TEST_CASE("it grows beyond what it began with, and goes on without the first") {
  for (const int64_t virtual_workers : {4, 0}) {
    for (const int size : {1, 2}) {
      CAPTURE(virtual_workers);
      CAPTURE(size);
      Plan plan{.size = size, .virtual_workers = virtual_workers};
      plan.comers = 4 - size;
      const Outcome outcome = Run(plan);
      CAPTURE(outcome.said);
      CHECK(outcome.processes == 4);
      CHECK(outcome.died == 1);
      // All at once.
      CHECK(Contains(outcome.said,
                     "rank 3 has come in; 4 processes go on from step 5 "
                     "(membership 2)"));
      CHECK(Contains(outcome.said, "3 processes go on from step"));
      REQUIRE(outcome.alive.size() == 3);
      plan.comers = 0;
      const Trained undisturbed =
          virtual_workers > 0 ? Train(plan, OptionsOf(plan), 0) : Trained();
      for (const auto& [process, each] : outcome.alive) {
        CAPTURE(process);
        REQUIRE(each.error == "");
        CHECK(each.result.steps == kSteps);
        CheckCounted(each);
        CheckVariables(each, outcome.alive.begin()->second);
        if (virtual_workers > 0) CheckVariables(each, undisturbed);
      }
    }
  }
}

TEST_CASE("too few that are left save what they have, and say so") {
  TemporaryFolder folder;
  Plan plan{.size = 3, .least = 3, .log_dir = folder / "log"};
  plan.fates = {200};  // rank 0, which owns the folder
  const Outcome outcome = Run(plan);
  CAPTURE(outcome.said);
  CHECK(outcome.died == 1);
  REQUIRE(outcome.alive.size() == 2);
  const auto steps =
      CheckpointManager::ForReading(plan.log_dir).Steps().ValueOrThrow();
  REQUIRE(!steps.empty());
  int64_t most = 0;
  for (const auto& [process, each] : outcome.alive) {
    CAPTURE(each.error);
    CHECK(Contains(each.error, "2 of at least 3 processes are left"));
    CHECK(Contains(each.error, "what was saved last is"));
    most = std::max(most, static_cast<int64_t>(each.losses.size()));
  }
  CHECK(steps.back() >= most);
  // And from there another goes on to the end.
  plan.least = 1;
  plan.fates.clear();
  const Outcome rest = Run(plan);
  for (const auto& [process, each] : rest.alive) {
    REQUIRE(each.error == "");
    CheckCounted(each);
  }
}

// What survivors of rank 0 have in memory is all that there is, and they do not
// come to train on it: who takes its place is of another training, or the
// evaluation that was due fails.
TEST_CASE("those that cannot go on together save what they have") {
  for (const bool stranger : {true, false}) {
    CAPTURE(stranger);
    TemporaryFolder folder;
    Plan plan{.size = 3, .log_dir = folder / "log"};
    if (stranger) {
      plan.least = 3;
      plan.restarts = 1;
      plan.stranger = 3;
    }
    plan.then_fails = !stranger;
    // Before the evaluation after 0.4 * 3 epochs.
    plan.lost_after = 29;
    const Outcome outcome = Run(plan);
    CAPTURE(outcome.said);
    CHECK(outcome.died == 1);
    CHECK(outcome.processes == (stranger ? 4 : 3));
    for (const int survivor : {1, 2}) {
      const Trained& each = outcome.alive.at(survivor);
      CAPTURE(each.error);
      CHECK(each.losses.size() == 29);
      CHECK(Contains(each.error,
                     stranger ? "is another than that of" : "no test data"));
    }
    CHECK(CheckpointManager::ForReading(plan.log_dir).Steps().ValueOrThrow() ==
          std::vector<int64_t>{29});
    // And from there another goes on to the end.
    const Outcome rest = Run({.size = 2, .log_dir = plan.log_dir});
    for (const auto& [process, each] : rest.alive) {
      CAPTURE(process);
      REQUIRE(each.error == "");
      CheckCounted(each);
    }
  }
}

// One that comes after these steps has none to trace, whoever it stands in for.
TEST_CASE("who comes in traces nothing that the others have") {
  for (const int least : {2, 3}) {
    for (const int dies : {0, 1}) {
      for (const int call : {100, 150, 200}) {
        CAPTURE(least);
        CAPTURE(dies);
        CAPTURE(call);
        TemporaryFolder folder;
        Plan plan{.size = 3, .least = least, .restarts = 1};
        plan.trace = folder / "trace.json";
        plan.fates = {0, 0, 0};
        plan.fates[static_cast<size_t>(dies)] = call;
        const Outcome outcome = Run(plan);
        CAPTURE(outcome.said);
        CHECK(outcome.died == 1);
        // Two wait for a third, where there are to be three.
        CHECK(outcome.alive.size() >= static_cast<size_t>(least));
        for (const auto& [process, each] : outcome.alive) {
          CAPTURE(process);
          REQUIRE(each.error == "");
          CHECK(each.result.steps == kSteps);
        }
        CHECK(std::filesystem::exists(plan.trace));
      }
    }
  }
}

// Others would end it, or change the training, when they come.
TEST_CASE("an elastic job of one trains what one process does") {
  for (const int64_t virtual_workers : {4, 0}) {
    CAPTURE(virtual_workers);
    const Plan plan{.size = 1, .virtual_workers = virtual_workers};
    const Outcome outcome = Run(plan);
    const Trained& one = outcome.alive.at(0);
    const Trained undisturbed = Train(plan, OptionsOf(plan), 0);
    CheckCounted(one);
    testing::CheckNear(one, undisturbed, 1e-5);
    if (virtual_workers > 0) CheckVariables(one, undisturbed);
  }
}

// Of one, too, to which others may come.
void CheckRefused(int size, const TrainerSpec& spec, const std::string& why) {
  CAPTURE(size);
  Plan plan{.size = size, .least = 1};
  const dist::testing::Watchdog watchdog;
  std::mutex mutex;
  std::vector<std::string> errors;
  ElasticJob job(
      size, 1, 0, [](int) { return 0; },
      [&](int, const std::shared_ptr<Mortal>& group) {
        TrainingOptions options = OptionsOf(plan);
        options.session.collective = group;
        try {
          RunContext run = ToyRun(kEpochs);
          run.batch_size = kBatch;
          Trainer(spec, run, options).Train();
        } catch (const Error& error) {
          const std::lock_guard lock(mutex);
          errors.emplace_back(error.what());
        }
      });
  job.Run();
  REQUIRE(errors.size() == static_cast<size_t>(size));
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(Contains(error, why));
  }
}

TEST_CASE("what an elastic job is not made for is refused") {
  TrainerSpec counts = CountingSpec();  // which cannot wait for the exchange
  counts.model = [](Scope& scope, const Features& in, const RunContext& run) {
    const Output count = scope.graph().Variable(
        "count", Zeros({}, DType::kInt64), {.trainable = false});
    if (run.training()) scope.graph().AddUpdate(AssignAdd(count, 1));
    return testing::Plain(scope, in, run);
  };
  for (const int size : {2, 1}) CheckRefused(size, counts, "updates 'count'");
  TrainerSpec shares = CountingSpec();
  shares.input = testing::PointsOfRank;
  CheckRefused(1, shares, "batches are shared out afterwards");
}

}  // namespace
}  // namespace sluice
