// Which checkpoint is used, and that early stopping goes on where it was.
#include "models/train/values/checkpoint_choice.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "models/train/hooks/hooks.h"
#include "models/train/values/hook_state.h"
#include "tests/support/error_text.h"
#include "tests/support/recording_reporter.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

using Kind = CheckpointChoice::Kind;

// Judges evaluations as it is told rather than by their accuracy.
class Judged : public EarlyStopping {
 public:
  Judged(int patience, std::vector<double> values)
      : EarlyStopping(patience), values_(std::move(values)) {}
  void AfterEvaluation(TrainingRun& run, const Evaluation& given) override {
    Evaluation evaluation = given;
    evaluation.values[1].second = values_.at(run.step() / 10 - 1);
    EarlyStopping::AfterEvaluation(run, evaluation);
  }

 private:
  std::vector<double> values_;
};

// Ends a training at a step, as a signal would.
class StopAt : public StopToken, public Hook {
 public:
  explicit StopAt(int64_t step) : step_(step) {}
  void Begin(TrainingRun& run) override { run_ = &run; }
  std::string Reason() const override {
    return run_ != nullptr && run_->step() >= step_ ? "interrupted" : "";
  }

 private:
  int64_t step_;
  const TrainingRun* run_ = nullptr;
};

// Of epochs 1, 2, ...: the best is the third.
const std::vector<double> kValues = {0.5, 0.6, 0.9, 0.8, 0.85,
                                     0.7, 0.9, 0.2, 0.1, 0.1};

TrainingResult Train(const std::string& log, int patience, int64_t until = 1000,
                     const std::vector<double>& values = kValues) {
  auto stop = std::make_unique<StopAt>(until);
  Trainer trainer(ToySpec(), ToyRun(10), {.log_dir = log, .stop = stop.get()});
  trainer.AddHook(std::make_unique<Judged>(patience, values));
  trainer.AddHook(std::move(stop));
  return trainer.Train();
}

TEST_CASE("early stopping counts on over interruptions anywhere") {
  TemporaryFolder folder;
  const TrainingResult whole = Train(folder / "whole", 4);
  CHECK(whole.steps == 70);
  CHECK(Contains(whole.stop_reason, "no better for 4 evaluations"));
  for (const int64_t piece : {3, 7, 10, 13, 20}) {
    CAPTURE(piece);
    const std::string log = folder / std::to_string(piece);
    TrainingResult result;
    for (int64_t until = piece; until < 100; until += piece) {
      result = Train(log, 4, until);
      if (result.stop_reason != "interrupted") break;
    }
    CHECK(result.steps == 70);
    CHECK(Contains(result.stop_reason, "no better for 4 evaluations"));
  }
}

TEST_CASE("early stopping keeps a best value that is infinite") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> unbeatable = kValues;
  unbeatable[1] = kInfinity;
  const std::vector<double> none(10, -kInfinity);
  for (const auto& [values, steps] :
       {std::pair(unbeatable, 60), std::pair(none, 50)}) {
    TemporaryFolder folder;
    CHECK(Train(folder / "whole", 4, 1000, values).steps == steps);
    TrainingResult result;
    for (int64_t until = 10; until < 100; until += 10) {
      result = Train(folder / "pieces", 4, until, values);
      if (result.stop_reason != "interrupted") break;
    }
    CHECK(result.steps == steps);
    CHECK(Contains(result.stop_reason, "no better for 4 evaluations"));
  }
}

TEST_CASE("one that has stopped does no further step, unless it may") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  CHECK(Train(log, 2).steps == 50);
  CHECK(Train(log, 2).steps == 50);
  CHECK(Train(log, 4).steps == 70);
}

TEST_CASE("the state of a hook that is damaged is told") {
  class Odd : public Hook {
   public:
    std::string StateName() const override { return "early_stopping"; }
    std::string SaveState() const override {
      return R"({"step": 1, "waited": 1.5})";
    }
  };
  TemporaryFolder folder;
  const TrainingOptions options = {.log_dir = folder / "log"};
  Trainer first(ToySpec(), ToyRun(1), options);
  first.AddHook(std::make_unique<Odd>());
  first.Train();
  Trainer second(ToySpec(), ToyRun(2), options);
  second.AddHook(std::make_unique<EarlyStopping>(3));
  const std::string error = ErrorOf([&] { second.Train(); });
  CHECK(Contains(error, "early_stopping"));
  CHECK(Contains(error, "waited"));
}

int64_t Chosen(const std::string& log, CheckpointChoice choice) {
  return ChooseCheckpoint(log, choice)->restored.checkpoint.state.step;
}

TEST_CASE("newest, best, a step, or the best once early stopping has ended") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  CHECK_FALSE(ChooseCheckpoint(log, {}));
  const auto save = [&](int64_t step, std::optional<double> metric,
                        const std::string& state) {
    auto manager = CheckpointManager::Open(log, {.keep = 100}).ValueOrThrow();
    Checkpoint checkpoint;
    checkpoint.state.step = step;
    checkpoint.state.metric = metric;
    if (!state.empty()) {
      checkpoint.state.extra[HookStateKey("early_stopping")] = state;
    }
    checkpoint.tensors = {{"w", Tensor::Scalar(1.0f)}};
    manager.Save(checkpoint).ValueOrThrow();
  };
  save(10, std::nullopt, "");
  CHECK(Chosen(log, {}) == 10);
  CHECK(Contains(ErrorOf([&] { Chosen(log, {.kind = Kind::kBest}); }),
                 "none is the best"));
  save(20, 0.9, R"({"waited":0,"ended":false})");
  save(30, 0.7, R"({"waited":1,"ended":false})");
  CHECK(Chosen(log, {}) == 30);
  CHECK(Chosen(log, {.kind = Kind::kNewest}) == 30);
  CHECK(Chosen(log, {.kind = Kind::kBest}) == 20);
  CHECK(Chosen(log, {.kind = Kind::kStep, .step = 10}) == 10);
  CHECK(
      Contains(ErrorOf([&] { Chosen(log, {.kind = Kind::kStep, .step = 11}); }),
               "only of: 10, 20, 30"));
  save(40, 0.8, R"({"waited":2,"ended":true})");
  CHECK(Chosen(log, {}) == 20);
  CHECK(Chosen(log, {.kind = Kind::kNewest}) == 40);

  // Damaged: of what was asked for nothing else is taken.
  const auto damage = [&](int64_t step) {
    const std::string path = CheckpointManager::ForReading(log).PathOf(step);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  };
  damage(20);
  for (const CheckpointChoice& choice :
       {CheckpointChoice{}, CheckpointChoice{.kind = Kind::kBest},
        CheckpointChoice{.kind = Kind::kStep, .step = 20}}) {
    CHECK(Contains(ErrorOf([&] { Chosen(log, choice); }), "checkpoint-20"));
  }
  CHECK(Chosen(log, {.kind = Kind::kNewest}) == 40);
}

TEST_CASE("of a metric that is never a number none is the best") {
  TemporaryFolder folder;
  TrainerSpec spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    model.metrics.clear();
    model.metrics.emplace_back("odd", Log(Mean(in["x"]) * 0 - 1));
    return model;
  };
  testing::RecordingReporter notes;
  TrainingOptions options = {.log_dir = folder / "log", .reporter = &notes};
  Trainer trainer(spec, ToyRun(10), options);
  trainer.AddHook(std::make_unique<EarlyStopping>(2));
  CHECK(trainer.Train().steps == 20);
  const auto evaluate = [&] {
    return Trainer(spec, ToyRun(10), options).Evaluate()->step;
  };
  CHECK(evaluate() == 20);
  CHECK(Contains(notes.text(),
                 "checkpoint-20.safetensors, the newest one, as none was "
                 "evaluated to a number"));
  options.checkpoint.kind = Kind::kBest;
  CHECK(Contains(ErrorOf(evaluate),
                 "was evaluated to a number, so none is the best"));
}

TEST_CASE("choices as flags say them") {
  CHECK(ParseCheckpointChoice("newest").kind == Kind::kNewest);
  CHECK(ParseCheckpointChoice("best").kind == Kind::kBest);
  CHECK(ParseCheckpointChoice("120").kind == Kind::kStep);
  CHECK(ParseCheckpointChoice("120").step == 120);
  for (const char* bad : {"", "worst", "-1", "1.5", "12 ", "newest1"}) {
    CHECK(Contains(ErrorOf([&] { ParseCheckpointChoice(bad); }), "newest"));
  }
}

}  // namespace
}  // namespace sluice
