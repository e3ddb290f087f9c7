// Groups of an elastic job that come to an end before their first step: what
// was saved stays as it is, and what was handed out is not lost.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "engine/runtime/collective.h"
#include "io/checkpoints/checkpoint.h"
#include "tests/support/await.h"
#include "tests/support/elastic_job.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::AwaitTrue;
using testing::Contains;
using testing::ElasticJob;
using testing::Mortal;
using testing::OnStep;
using testing::PlainSpec;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::Trained;

constexpr int kEpochs = 3;
constexpr int64_t kStepsPerEpoch = 10;  // ToyRun's

Trained Train(int process, const TrainingOptions& options,
              const OnStep& after_step, std::unique_ptr<Hook> hook = nullptr) {
  Trained mine;
  try {
    Trainer trainer(PlainSpec(), ToyRun(kEpochs), options);
    if (hook != nullptr) trainer.AddHook(std::move(hook));
    trainer.AddHook(
        std::make_unique<testing::Watch>(process, after_step, &mine));
    mine.result = trainer.Train();
  } catch (const Error& error) {
    mine.error = error.what();
  }
  return mine;
}

// Ends a training that others have come into.
class OnceThereAreOthers : public StopToken {
 public:
  explicit OnceThereAreOthers(const Collective& group) : group_(group) {}
  std::string Reason() const override {
    return group_.size() > 1 ? "told to" : "";
  }

 private:
  const Collective& group_;
};

// Before the first evaluation is saved.
class AtEvaluation : public Hook {
 public:
  explicit AtEvaluation(std::function<void()> fn) : fn_(std::move(fn)) {}
  void AfterEvaluation(TrainingRun&, const Evaluation&) override {
    if (const auto fn = std::exchange(fn_, nullptr)) fn();
  }

 private:
  std::function<void()> fn_;
};

TEST_CASE("a group that is told to end at once leaves what was evaluated") {
  const dist::testing::Watchdog watchdog;
  const TemporaryFolder folder;
  std::mutex mutex;
  std::map<int, Trained> all;  // by process
  ElasticJob* running = nullptr;
  ElasticJob job(
      1, 1, 0, [](int) { return 0; },
      [&](int process, const std::shared_ptr<Mortal>& group) {
        const OnceThereAreOthers stop(*group);
        TrainingOptions options;
        options.log_dir = folder / "log";
        options.stop = &stop;
        options.session.collective = group;
        std::unique_ptr<Hook> grows;
        if (process == 0) {
          grows = std::make_unique<AtEvaluation>([&] {
            running->Grow(1);
            AwaitTrue([&] { return group->called(); });
          });
        }
        Trained mine = Train(process, options, nullptr, std::move(grows));
        const std::lock_guard lock(mutex);
        all[process] = std::move(mine);
      });
  running = &job;
  job.Run();
  CAPTURE(job.said());
  REQUIRE(all.size() == 2);
  for (const auto& [process, each] : all) {
    CAPTURE(process);
    REQUIRE(each.error == "");
    CHECK(Contains(each.result.interrupted, "told to"));
    CHECK(each.result.steps == kStepsPerEpoch);
  }
  const auto saved = CheckpointManager::ForReading(folder / "log");
  const auto evaluated = saved.RestoreStep(kStepsPerEpoch).ValueOrThrow();
  CHECK(evaluated.checkpoint.state.metric.has_value());
  CHECK(all[0].result.checkpoint == evaluated.path);
}

// The first has trained by itself when another takes the place of the one that
// died, and dies when that has everything.
TEST_CASE("who is left with what was handed out goes on from there") {
  const dist::testing::Watchdog watchdog;
  std::mutex mutex;
  std::map<int, Trained> alive;  // by process
  std::atomic<bool> given = false;
  ElasticJob job(
      2, 1, /*restarts=*/1, [](int) { return 0; },
      [&](int process, const std::shared_ptr<Mortal>& group) {
        constexpr int64_t kLost = 7;
        TrainingOptions options;
        options.session.collective = group;
        bool trained = false;
        group->BeforeBarriers([&](std::string_view name) {
          if (name != "begun") return;
          if (process == 2) given = true;
          if (process != 0 || !trained) return;
          AwaitTrue([&] { return given.load(); });
          group->Die();
        });
        const OnStep after_step = [&](int, TrainingRun& run) {
          trained = true;
          if (process == 1 && run.step() == kLost) group->Die();
          if (process != 0 || group->size() > 1) return;
          AwaitTrue([&] { return group->called(); });
        };
        Trained mine = Train(process, options, after_step);
        const std::lock_guard lock(mutex);
        if (!group->died()) alive[process] = std::move(mine);
      });
  job.Run();
  CAPTURE(job.said());
  CHECK(job.died() == 2);
  REQUIRE(alive.size() == 1);
  const Trained& last = alive.at(2);
  REQUIRE(last.error == "");
  CHECK(last.result.steps == kEpochs * kStepsPerEpoch);
  CHECK(static_cast<int64_t>(last.losses.size()) < last.result.steps);
  CHECK(Contains(job.said(), "1 process goes on from step "));
  CHECK(job.said().find("what was saved last") == std::string::npos);
}

}  // namespace
}  // namespace sluice
