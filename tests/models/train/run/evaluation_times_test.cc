// Evaluations every so many epochs: wherever a training pauses or is
// interrupted, and whatever it goes on with, each is made once.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "io/checkpoints/checkpoint.h"
#include "models/train/hooks/hooks.h"
#include "tests/support/error_text.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::kAnyLead;
using testing::kPoints;
using testing::PlainSpec;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::Trained;
using testing::TrainOn;

// Told to end while an evaluation runs or, where there is none, a step later.
class Told : public StopToken {
 public:
  // At the second question from now on: the first comes before the evaluation.
  void AtSecond() { left_ = 1; }
  std::string Reason() const override {
    if (left_ == 0) return "told to";
    if (left_ > 0) --left_;
    return "";
  }

 private:
  mutable int left_ = -1;  // below 0: it is told nothing
};

using Evaluated = std::vector<int64_t>;

// Notes what rank 0 has trained on when it evaluates because that is due, as
// `what` says; has it told from step `within` on.
class Look : public Hook {
 public:
  using What = int64_t (*)(const TrainingRun& run);
  Look(What what, Evaluated* evaluated, int64_t within, Told* told)
      : what_(what), evaluated_(evaluated), within_(within), told_(told) {}
  void AfterStep(TrainingRun& run) override {
    if (run.workers().leads() && run.step() == within_) told_->AtSecond();
  }
  void AfterEvaluation(TrainingRun& run,
                       const Evaluation& evaluation) override {
    if (!run.workers().leads() || !evaluation.due) return;
    evaluated_->push_back(what_(run));
  }

 private:
  const What what_;
  Evaluated* const evaluated_;
  const int64_t within_;
  Told* const told_;
};

int64_t Steps(const TrainingRun& run) {
  return run.step();
}

int64_t Examples(const TrainingRun& run) {
  return std::lround(run.epoch() * kPoints);
}

// A part of a training: to its end, until it pauses after a step or is told to
// end from one on.
struct Part {
  RunContext run;
  std::string log_dir = {};
  int64_t pause = 0, within = 0;  // 0: neither
  bool batch_by_workers = false;
  int servers = 0, workers = 1;
};

void Train(const Part& part, Look::What what, Evaluated* evaluated) {
  Told told;
  Task task{.spec = [](int) { return PlainSpec(); }, .run = part.run};
  task.options = [&](int rank) {
    TrainingOptions options{.log_dir = part.log_dir,
                            .batch_by_workers = part.batch_by_workers};
    if (rank == 0) options.stop = &told;
    return options;
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(
        std::make_unique<Look>(what, evaluated, part.within, &told));
    if (part.pause > 0) {
      trainer.AddHook(std::make_unique<StopAtStep>(part.pause));
    }
  };
  for (const Trained& each :
       TrainOn(part.servers, part.workers, kAnyLead, task)) {
    REQUIRE(each.error == "");
    CHECK(each.result.interrupted.empty() == (part.within == 0));
  }
}

// As one that was saved before checkpoints said how many were made.
void MakeOlder(const std::string& log_dir) {
  const auto saved =
      CheckpointManager::ForReading(log_dir).RestoreNewest().ValueOrThrow();
  REQUIRE(saved);
  Checkpoint checkpoint = saved->checkpoint;
  REQUIRE(checkpoint.state.extra.erase("evaluations") == 1);
  ThrowIfError(WriteCheckpoint(saved->path, checkpoint));
}

RunContext WithBatches(int64_t size, double epochs) {
  RunContext run = ToyRun(epochs);
  run.batch_size = size;
  return run;
}

// An epoch has twelve steps and a half.
TEST_CASE("an evaluation after half a step is made once, also of a resumed") {
  const Evaluated whole = {13, 25};
  Evaluated evaluated;
  Train({.run = WithBatches(20, 2)}, Steps, &evaluated);
  CHECK(evaluated == whole);
  for (const bool older : {false, true}) {
    CAPTURE(older);
    for (const int64_t pause : {11, 12, 13, 14}) {
      CAPTURE(pause);
      TemporaryFolder folder;
      Part part{.run = WithBatches(20, 2), .log_dir = folder / "log"};
      evaluated.clear();
      part.pause = pause;
      Train(part, Steps, &evaluated);
      if (older) MakeOlder(part.log_dir);
      part.pause = 0;
      Train(part, Steps, &evaluated);
      CHECK(evaluated == whole);
    }
    TemporaryFolder folder;
    Part part{.run = WithBatches(20, 2), .log_dir = folder / "log"};
    evaluated.clear();
    part.within = 13;
    Train(part, Steps, &evaluated);
    CHECK(evaluated.empty());
    if (older) MakeOlder(part.log_dir);
    part.within = 0;
    Train(part, Steps, &evaluated);
    CHECK(evaluated == whole);
  }
}

TEST_CASE("an epoch is evaluated once where batches become others within it") {
  struct Case {
    int64_t before, pause, within, after;
    Evaluated examples;  // after the steps nearest to 250, 500, ...
  };
  for (const Case& each : {Case{10, 0, 26, 50, {250, 520, 770, 1020}},
                           Case{60, 4, 0, 10, {240, 500, 750, 1000}}}) {
    CAPTURE(each.before);
    TemporaryFolder folder;
    Part part{.run = WithBatches(each.before, 4), .log_dir = folder / "log"};
    part.batch_by_workers = true;
    part.pause = each.pause;
    part.within = each.within;
    Evaluated evaluated;
    Train(part, Examples, &evaluated);
    CHECK(evaluated == Evaluated{each.examples[0]});
    part.run = WithBatches(each.after, 4);
    part.pause = part.within = 0;
    Train(part, Examples, &evaluated);
    CHECK(evaluated == each.examples);
  }
}

// Four come to step 10 with 12.
TEST_CASE("what workers of their own speed have missed one alone makes up") {
  TemporaryFolder folder;
  Part part{.run = ToyRun(2), .log_dir = folder / "log"};
  part.within = 12;
  part.servers = 1;
  part.workers = 4;
  Evaluated evaluated;
  Train(part, Steps, &evaluated);
  CHECK(evaluated.empty());
  part.within = 0;
  part.workers = 1;
  Train(part, Steps, &evaluated);
  CHECK(evaluated == Evaluated{12, 20});
}

class FailsAtEvaluation : public Hook {
 public:
  void AfterEvaluation(TrainingRun& /*run*/,
                       const Evaluation& /*evaluation*/) override {
    throw Error(Code::kDataLoss, "no room");
  }
};

TEST_CASE("an evaluation at which a hook fails is made again") {
  TemporaryFolder folder;
  Evaluated evaluated;
  const auto error_of = [&](std::unique_ptr<Hook> hook) {
    Told told;
    Trainer trainer(PlainSpec(), ToyRun(2), {.log_dir = folder / "log"});
    trainer.AddHook(std::make_unique<Look>(Steps, &evaluated, 0, &told));
    if (hook != nullptr) trainer.AddHook(std::move(hook));
    return testing::ErrorOf([&] { trainer.Train(); });
  };
  CHECK(Contains(error_of(std::make_unique<FailsAtEvaluation>()), "no room"));
  CHECK(evaluated == Evaluated{10});
  CHECK(error_of(nullptr) == "(no error)");
  CHECK(evaluated == Evaluated{10, 10, 20});
}

// Then the count is of other epochs.
TEST_CASE("evaluations that are to come more often have none to make up") {
  TemporaryFolder folder;
  Evaluated evaluated;
  const auto train = [&](double every, int64_t pause) {
    Told told;
    Trainer trainer(PlainSpec(), ToyRun(3),
                    {.log_dir = folder / "log", .evaluate_every = every});
    trainer.AddHook(std::make_unique<Look>(Steps, &evaluated, 0, &told));
    if (pause > 0) trainer.AddHook(std::make_unique<StopAtStep>(pause));
    trainer.Train();
  };
  train(2, 17);
  CHECK(evaluated.empty());
  train(0.5, 0);
  CHECK(evaluated == Evaluated{20, 25, 30});
}

}  // namespace
}  // namespace sluice
