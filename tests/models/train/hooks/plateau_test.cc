// Lowering the learning rate on a plateau: against PyTorch's rules, over
// interruptions, and that it is the rate of the steps.
#include "models/train/hooks/plateau.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "graph/ops/elementwise.h"
#include "models/train/trainer.h"
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

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode='rel', eps=0,
// written down from its documentation, for an optimizer whose rate is 1.
class Scheduler {
 public:
  Scheduler(bool max_mode, const PlateauOptions& options)
      : max_mode_(max_mode),
        options_(options),
        best_(max_mode ? -kInfinity : kInfinity) {}

  double Step(double metric) {
    const bool better = max_mode_ ? metric > best_ * (1 + options_.threshold)
                                  : metric < best_ * (1 - options_.threshold);
    if (better) {
      best_ = metric;
      num_bad_epochs_ = 0;
    } else {
      num_bad_epochs_ += 1;
    }
    if (cooldown_counter_ > 0) {
      cooldown_counter_ -= 1;
      num_bad_epochs_ = 0;
    }
    if (num_bad_epochs_ > options_.patience) {
      rate_ = std::max(rate_ * options_.factor, options_.least);
      cooldown_counter_ = options_.cooldown;
      num_bad_epochs_ = 0;
    }
    return rate_;
  }

 private:
  bool max_mode_;
  PlateauOptions options_;
  double best_;
  int num_bad_epochs_ = 0, cooldown_counter_ = 0;
  double rate_ = 1;
};

TrainerSpec PlateauSpec(const LearningRate& rate = 0.1) {
  TrainerSpec spec = ToySpec();
  spec.optimizer = [rate](const RunContext&) {
    return optimizers::Momentum(schedules::Plateau(rate), 0.9);
  };
  return spec;
}

double FactorOf(TrainingRun& run) {
  return run.session().Read(LearningRateFactor(run.graph())).At(0);
}

// Few values, so that many are equal, within the threshold of one another, or
// of either sign; and those that are no numbers.
double RandomMetric(std::mt19937& random) {
  switch (random() % 16) {
    case 0:
      return std::numeric_limits<double>::quiet_NaN();
    case 1:
      return random() % 4 == 0 ? kInfinity : 0;
    case 2:
      return random() % 4 == 0 ? -kInfinity : 0;
    case 3:
      return random() % 8 == 0 ? 1e308 : -0.0;
    default:
      return (static_cast<double>(random() % 9) - 4) *
             (1 + 1e-5 * static_cast<double>(random() % 20));
  }
}

PlateauOptions RandomOptions(std::mt19937& random) {
  const double factors[] = {0.1, 0.5, 0.9}, leasts[] = {0, 1e-3, 0.3};
  const double thresholds[] = {0, 1e-4, 0.5};
  return {.patience = static_cast<int>(random() % 5),
          .factor = factors[random() % 3],
          .threshold = thresholds[random() % 3],
          .cooldown = static_cast<int>(random() % 4),
          .least = leasts[random() % 3]};
}

// Feeds a random sequence to the hook and to the reference; returns how often
// the factor fell. Now and then an evaluation comes twice, or the hook is
// replaced by one that takes over its saved state.
int CheckSequence(TrainingRun& run, bool max_mode, std::mt19937& random) {
  const PlateauOptions options = RandomOptions(random);
  Scheduler scheduler(max_mode, options);
  auto hook = std::make_unique<ReduceOnPlateau>(options);
  run.session().Write(LearningRateFactor(run.graph()), Tensor::Scalar(1.0));
  hook->Begin(run);
  const bool has_metric = !run.model().metrics.empty();
  double before = 1;
  int reductions = 0;
  for (int64_t step = 0; step < 40; step += 1 + random() % 3) {
    const double metric = RandomMetric(random);
    Evaluation evaluation;
    evaluation.step = step;
    evaluation.values = {{"loss", metric}};
    if (has_metric) {
      evaluation.values = {{"loss", RandomMetric(random)}, {"m", metric}};
    }
    const double wanted = scheduler.Step(metric);
    CAPTURE(step);
    CAPTURE(metric);
    hook->AfterEvaluation(run, evaluation);
    REQUIRE(FactorOf(run) == wanted);
    if (random() % 4 == 0) {
      const std::string state = hook->SaveState();
      hook = std::make_unique<ReduceOnPlateau>(options);
      hook->RestoreState(state);
      REQUIRE(hook->SaveState() == state);
    }
    if (random() % 4 == 0) hook->AfterEvaluation(run, evaluation);
    REQUIRE(FactorOf(run) == wanted);
    if (wanted < before) ++reductions;
    before = wanted;
  }
  return reductions;
}

TEST_CASE("the factor follows PyTorch's rules") {
  for (const bool with_metric : {true, false}) {
    for (const bool higher_is_better : {true, false}) {
      CAPTURE(with_metric);
      CAPTURE(higher_is_better);
      TrainerSpec spec = PlateauSpec();
      spec.higher_is_better = higher_is_better;
      if (!with_metric) {
        spec.model = [](Scope& scope, const Features& in,
                        const RunContext& run) {
          ModelSpec model = testing::Network(scope, in, run);
          model.metrics.clear();
          return model;
        };
      }
      TrainingRun run(spec, ToyRun(1), {});
      std::mt19937 random(with_metric ? 1 : 2);
      int reductions = 0;
      for (int sequence = 0; sequence < 100; ++sequence) {
        CAPTURE(sequence);
        reductions +=
            CheckSequence(run, with_metric && higher_is_better, random);
      }
      CHECK(reductions > 100);
    }
  }
}

// What a training was like: the rate of each step and all notes.
struct Record {
  std::map<int64_t, double> rates;
  std::vector<std::string> notes;
};

// Keeps the rates, and ends a training at a step as a signal would.
class Watch : public StopToken, public Hook {
 public:
  Watch(Record* record, int64_t until) : record_(record), until_(until) {}
  void Begin(TrainingRun& run) override { run_ = &run; }
  bool Measures(const TrainingRun&, int64_t) const override { return true; }
  void AfterStep(TrainingRun& run) override {
    REQUIRE(run.measurement().step == run.step());
    CHECK(record_->rates.emplace(run.step(), run.measurement().learning_rate)
              .second);
  }
  std::string Reason() const override {
    return run_ != nullptr && run_->step() >= until_ ? "interrupted" : "";
  }

 private:
  Record* record_;
  int64_t until_;
  const TrainingRun* run_ = nullptr;
};

const std::vector<double> kAccuracies = {0.5, 0.6, 0.6, 0.55, 0.6, 0.6,
                                         0.7, NAN, 0.7, 0.65, 0.7, 0.7};
constexpr PlateauOptions kOptions = {
    .patience = 1, .factor = 0.25, .cooldown = 1, .least = 0.05};

// Judges evaluations as it is told rather than by their accuracy.
class Judged : public ReduceOnPlateau {
 public:
  Judged() : ReduceOnPlateau(kOptions) {}
  void AfterEvaluation(TrainingRun& run, const Evaluation& given) override {
    Evaluation evaluation = given;
    evaluation.values[1].second = kAccuracies.at(run.step() / 10 - 1);
    ReduceOnPlateau::AfterEvaluation(run, evaluation);
  }
};

const LearningRate kFalling = schedules::Polynomial(0.1, 1000, 0.01);

TrainingResult Train(const std::string& log, Record* record,
                     int64_t until = 1000) {
  auto watch = std::make_unique<Watch>(record, until);
  testing::RecordingReporter notes;
  Trainer trainer(PlateauSpec(kFalling),
                  ToyRun(static_cast<double>(kAccuracies.size())),
                  {.log_dir = log, .reporter = &notes, .stop = watch.get()});
  trainer.AddHook(std::make_unique<Judged>());
  trainer.AddHook(std::move(watch));
  const TrainingResult result = trainer.Train();
  for (const std::string& note : notes.lines()) record->notes.push_back(note);
  return result;
}

std::vector<std::string> Reductions(const Record& record) {
  std::vector<std::string> notes;
  for (const std::string& note : record.notes) {
    if (note.find("multiplied") != note.npos) notes.push_back(note);
  }
  return notes;
}

TEST_CASE("steps have the rate, over interruptions anywhere") {
  TemporaryFolder folder;
  Record whole;
  const TrainingResult result = Train(folder / "whole", &whole);
  REQUIRE(whole.rates.size() == 10 * kAccuracies.size());
  Scheduler scheduler(true, kOptions);
  double factor = 1;
  for (const auto& [step, rate] : whole.rates) {
    CAPTURE(step);
    const double schedule =
        0.01 + 0.09 * (1 - static_cast<double>(step - 1) / 1000);
    CHECK(rate == doctest::Approx(factor * schedule).epsilon(1e-6));
    if (step % 10 == 0) factor = scheduler.Step(kAccuracies[step / 10 - 1]);
  }
  CHECK(factor == 0.05);
  const std::vector<std::string> reductions = Reductions(whole);
  REQUIRE(reductions.size() >= 2);
  CHECK(reductions[0] ==
        "the learning rate is multiplied by 0.25 from step 41: no better for 2 "
        "evaluations; it is now 0.25 times its schedule");

  for (const int64_t piece : {3, 7, 10, 13, 20, 30}) {
    CAPTURE(piece);
    const std::string log = folder / std::to_string(piece);
    Record pieces;
    TrainingResult last;
    for (int64_t until = piece;
         last.stop_reason == "interrupted" || pieces.rates.empty();
         until += piece) {
      last = Train(log, &pieces, until);
    }
    CHECK(last.steps == result.steps);
    CHECK(pieces.rates == whole.rates);
    CHECK(Reductions(pieces) == reductions);
    for (const std::string& note : pieces.notes) {
      CHECK(note.find("the learning rate was") == note.npos);
    }
  }
}

TEST_CASE("a training that is taken up where it had ended judges nothing") {
  TemporaryFolder folder;
  Record record;
  Train(folder / "log", &record);
  const size_t reductions = Reductions(record).size();
  for (int again = 0; again < 4; ++again) Train(folder / "log", &record);
  CHECK(Reductions(record).size() == reductions);
}

TEST_CASE("the variable is in the checkpoint, and a missing one is told") {
  TemporaryFolder folder;
  Record record;
  Train(folder / "log", &record);
  const auto restored = CheckpointManager::ForReading(folder / "log")
                            .RestoreNewest()
                            .ValueOrThrow();
  REQUIRE(restored);
  CHECK(restored->checkpoint.state.schedule ==
        "plateau(" + kFalling.description() + ")");
  const auto& tensors = restored->checkpoint.tensors;
  const auto factor = std::find_if(
      tensors.begin(), tensors.end(),
      [](const NamedTensor& t) { return t.name == "learning_rate_factor"; });
  REQUIRE(factor != tensors.end());
  CHECK(factor->tensor.At(0) == 0.05);

  Trainer other(ToySpec(), ToyRun(1), {});
  other.AddHook(std::make_unique<ReduceOnPlateau>());
  const std::string error = ErrorOf([&] { other.Train(); });
  CHECK(Contains(error, "is not schedules::Plateau"));
  CHECK(Contains(error, "2:0.01->0.1"));
}

TEST_CASE("a schedule may come and go, and is no part of the weights") {
  TemporaryFolder folder;
  const auto train = [&](const TrainerSpec& spec, double epochs,
                         const TrainingOptions& options) {
    return Trainer(spec, ToyRun(epochs), options).Train();
  };
  const TrainerSpec with = PlateauSpec(0.1), without = [] {
    TrainerSpec spec = PlateauSpec(0.1);
    spec.optimizer = [](const RunContext&) {
      return optimizers::Momentum(0.1, 0.9);
    };
    return spec;
  }();
  const TrainingOptions options = {.log_dir = folder / "log"};
  train(without, 1, options);
  CHECK(train(with, 2, options).steps == 20);
  const TrainingResult last = train(without, 3, options);
  CHECK(last.steps == 30);
  train(with, 1, {.log_dir = folder / "with"});
  const auto path = CheckpointManager::ForReading(folder / "with").PathOf(10);
  CHECK(train(ToySpec(), 0, {.weights = path}).steps == 0);
}

TEST_CASE("steps that are run again after a reduction have its rate") {
  // The logarithm is of a negative number once the factor has fallen.
  TrainerSpec spec = PlateauSpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext& run) {
    ModelSpec model = testing::Network(scope, in, run);
    if (!run.training()) return model;
    const Output factor = schedules::Plateau(1).At(GlobalStep(scope.graph()));
    NameScope names(scope.graph(), "trap");
    model.loss = model.loss + 0 * Log(factor - 0.5);
    return model;
  };
  Trainer trainer(spec, ToyRun(12), {});
  trainer.AddHook(std::make_unique<Judged>());
  const std::string error = ErrorOf([&] { trainer.Train(); });
  CHECK(Contains(error, "step 41: the loss is"));
  CHECK(Contains(error, "'trap/log' in step 41"));
}

TEST_CASE("a state that it did not write is refused and changes nothing") {
  ReduceOnPlateau hook;
  const std::string state = R"({"bad":2,"best":-0.5,"cooldown":1,"step":30})";
  hook.RestoreState(state);
  CHECK(hook.SaveState() == state);
  for (const char* bad :
       {"", "[]", "{}", R"({"bad":2,"cooldown":1})",
        R"({"bad":-1,"cooldown":1,"step":7})",
        R"({"bad":1.5,"cooldown":1,"step":7})",
        R"({"bad":1,"cooldown":-1,"step":7})",
        R"({"bad":1,"cooldown":true,"step":7})",
        R"({"bad":1,"cooldown":1,"step":-2})",
        R"({"bad":1,"cooldown":1,"step":9223372036854775808})",
        R"({"bad":1,"best":"nan","cooldown":1,"step":7})",
        R"({"bad":1,"best":null,"cooldown":1,"step":7})",
        R"({"bad":1,"best":1e999,"cooldown":1,"step":7})"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(hook.RestoreState(bad), Error);
    CHECK(hook.SaveState() == state);
  }
}

TEST_CASE("options that make no sense are refused") {
  for (const PlateauOptions& bad :
       std::vector<PlateauOptions>{{.patience = -1},
                                   {.factor = 0},
                                   {.factor = 1},
                                   {.factor = NAN},
                                   {.threshold = -1e-4},
                                   {.threshold = 1},
                                   {.threshold = NAN},
                                   {.cooldown = -1},
                                   {.least = -0.1},
                                   {.least = 1.1},
                                   {.least = NAN}}) {
    CHECK(Contains(ErrorOf([&] { ReduceOnPlateau hook(bad); }),
                   "reduce on plateau: wanted"));
  }
}

}  // namespace
}  // namespace sluice
