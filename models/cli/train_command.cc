#include "models/cli/commands.h"

#include <fmt/format.h>

#include "engine/text/json.h"
#include "io/files/file.h"
#include "models/cli/console.h"
#include "models/cli/fast_dev_run.h"
#include "models/cli/interrupt.h"
#include "models/cli/progress.h"
#include "models/cli/results.h"
#include "models/report/rate_page.h"
#include "models/train/hooks/hooks.h"
#include "models/train/hooks/plateau.h"
#include "models/train/rate_finder.h"
#include "models/train/run/first_batches.h"
#include "models/train/trainer.h"

namespace sluice::commands {
namespace {

// For an optimizer whose rate another takes the place of, what that rate would
// have to know: it must not be an error that nobody does.
RunContext WithSomeEpochs(RunContext run) {
  if (run.knows_epochs()) return run;
  run.epoch_is_all_steps = false;
  run.steps_per_epoch = 1;
  return run;
}

void CheckAccumulate(int64_t batches, const RunContext& run) {
  if (!run.knows_total_steps()) return;
  const int64_t total = run.total_steps();
  if (total == 0 || batches <= total) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("--accumulate {} is more batches to an update than "
                          "there are steps, {}: nothing would be trained",
                          batches, total));
}

// The spec with the optimizer that flags ask for.
TrainerSpec WithFlags(const TrainerSpec& spec, const CommandLine& line) {
  TrainerSpec out = spec;
  const OptimizerFlags& asked = line.optimizing;
  const bool own_rate = asked.learning_rate.empty() &&
                        (asked.optimizer.empty() || asked.keeps_rate);
  out.optimizer = [given = spec.optimizer, own_rate,
                   scaled = spec.rate_by_batch_size && own_rate,
                   flags = asked](const RunContext& run) {
    Optimizer optimizer = given ? given(own_rate ? run : WithSomeEpochs(run))
                                : optimizers::Adam();
    if (!flags.optimizer.empty()) {
      const Optimizer named = optimizers::ByName(flags.optimizer);
      optimizer = named.WithExtrasOf(optimizer).WithLearningRate(
          own_rate ? optimizer.learning_rate() : named.learning_rate());
    }
    if (!flags.learning_rate.empty()) {
      optimizer =
          optimizer.WithLearningRate(Schedule(flags.learning_rate, run));
    }
    if (flags.rate_scale != 1 && !scaled) {
      optimizer = optimizer.WithLearningRate(
          schedules::Scaled(optimizer.learning_rate(), flags.rate_scale));
    }
    if (flags.plateau) {
      optimizer = optimizer.WithLearningRate(
          schedules::Plateau(optimizer.learning_rate()));
    }
    for (const auto& [patterns, factor] : flags.rate_factors) {
      optimizer = optimizer.WithRateFactor(patterns, factor);
    }
    if (flags.accumulate > 1) {
      CheckAccumulate(flags.accumulate, run);
      optimizer = optimizer.With(gradients::Accumulate(flags.accumulate));
    }
    // What is clipped is the gradient that updates.
    if (flags.clip > 0) {
      optimizer = optimizer.With(gradients::ClipByGlobalNorm(flags.clip));
    }
    return optimizer;
  };
  return out;
}

// `reason` is of the process that had the signal; empty: of this one.
int ReportInterrupt(const CommandLine& line, const std::string& reason,
                    int64_t step, const std::string& checkpoint) {
  const int signal =
      reason.empty() ? InterruptSignal() : InterruptNamed(reason);
  const int code = 128 + signal;
  if (!Leads(line)) return code;
  if (line.json) {
    console::Print(Json{
        {"event", "interrupted"},
        {"signal", InterruptName(signal)},
        {"steps", step},
        {"checkpoint",
         checkpoint}}.LenientText());
  }
  std::string what = "saved " + checkpoint;
  if (checkpoint.empty()) {
    what = "nothing was saved";
    if (line.training.log_dir.empty()) what += ", there is no --log-dir";
  }
  console::Note(
      fmt::format("{} at step {}: {}", InterruptName(signal), step, what));
  return code;
}

// By what --learning-rate takes, which --scale-learning-rate multiplies.
RateCurve Given(RateCurve curve, double scale) {
  for (double& rate : curve.rates) rate /= scale;
  if (curve.suggested) *curve.suggested /= scale;
  return curve;
}

// Raises the learning rate and says where the loss fell fastest.
int SearchRate(const TrainerSpec& spec, const CommandLine& line) {
  if (line.training.servers.any()) {
    throw Error(Code::kInvalidArgument,
                "--find-rate is for processes without parameter servers");
  }
  const std::string& path = *line.find_rate;
  if (Leads(line)) CheckPage("--find-rate", path);
  const RateCurve curve = Given(FindRate(spec, line.run, line.training),
                                line.optimizing.rate_scale);
  if (!curve.interrupted.empty()) {
    return 128 + InterruptNamed(curve.interrupted);
  }
  if (!Leads(line)) return 0;
  if (line.json) {
    Json result = {{"event", "find_rate"},
                   {"steps", curve.rates.size()},
                   {"diverged", curve.diverged},
                   {"path", path}};
    if (curve.suggested) result["suggested"] = *curve.suggested;
    console::Print(result.LenientText());
  } else {
    const std::string found =
        curve.suggested
            ? fmt::format("at a learning rate of {:.2g} the loss fell fastest",
                          *curve.suggested)
            : "at none of the learning rates the loss fell";
    const std::string range =
        curve.rates.empty()
            ? ""
            : fmt::format(" from {:.2g} to {:.2g}{}", curve.rates.front(),
                          curve.rates.back(),
                          curve.diverged ? ", where it diverged" : "");
    console::Print(
        fmt::format("{}; {} steps{}", found, curve.rates.size(), range));
  }
  const std::string title = fmt::format("{} {}: learning rates", spec.name,
                                        ModelName(spec, line.run));
  ThrowIfError(FileSystem::Default().WriteAtomically(
      path, report::RatePage(curve, title)));
  console::Note("wrote " + path);
  return 0;
}

// Those that stop training and lower its rate.
void AddJudges(const CommandLine& line, Trainer& trainer) {
  if (line.optimizing.plateau) {
    trainer.AddHook(std::make_unique<ReduceOnPlateau>(
        PlateauOptions{.patience = *line.optimizing.plateau,
                       .factor = line.optimizing.plateau_factor}));
  }
  if (line.patience) {
    trainer.AddHook(std::make_unique<EarlyStopping>(*line.patience));
  }
}

int Rehearse(const TrainerSpec& spec, const CommandLine& line) {
  const std::string interrupted =
      FastDevRun(spec, line.run, line.training,
                 [&](Trainer& trainer) { AddJudges(line, trainer); });
  if (!interrupted.empty()) return 128 + InterruptNamed(interrupted);
  if (line.json && Leads(line)) {
    console::Print(Json{{"event", "fast_dev_run"}, {"ok", true}}.Text());
  }
  return 0;
}

// All processes have a part in it.
void AddProfile(const CommandLine& line, Trainer& trainer) {
  if (!line.profile) return;
  const auto [first, last] = *line.profile;
  const std::string& folder = line.training.log_dir;
  const std::string name = fmt::format("trace-{}-{}.json", first, last);
  trainer.AddHook(std::make_unique<Profile>(
      first, last, folder.empty() ? name : JoinPath(folder, name)));
}

// A hook without a state, of which only rank 0 has any use: in an elastic job
// that is not always the same process.
class OfRankZero : public Hook {
 public:
  explicit OfRankZero(std::unique_ptr<Hook> hook) : hook_(std::move(hook)) {}
  void Begin(TrainingRun& run) override {
    if (run.workers().leads()) hook_->Begin(run);
  }
  bool Measures(const TrainingRun& run, int64_t step) const override {
    return run.workers().leads() && hook_->Measures(run, step);
  }
  void AfterStep(TrainingRun& run) override {
    if (run.workers().leads()) hook_->AfterStep(run);
  }
  void AtMeeting(TrainingRun& run) override {
    if (run.workers().leads()) hook_->AtMeeting(run);
  }
  void AfterEvaluation(TrainingRun& run,
                       const Evaluation& evaluation) override {
    if (run.workers().leads()) hook_->AfterEvaluation(run, evaluation);
  }
  void OnError(TrainingRun& run) noexcept override {
    if (run.workers().leads()) hook_->OnError(run);
  }
  void End(TrainingRun& run) override {
    if (run.workers().leads()) hook_->End(run);
  }

 private:
  const std::unique_ptr<Hook> hook_;
};

// What is told of a training, and to whom.
void AddReports(const TrainerSpec& spec, const CommandLine& line,
                Trainer& trainer) {
  const TrainingOptions& options = line.training;
  const auto add = [&](std::unique_ptr<Hook> hook) {
    trainer.AddHook(std::make_unique<OfRankZero>(std::move(hook)));
  };
  if (line.summary) add(std::make_unique<ShowSummary>());
  if (line.verbose) add(std::make_unique<PassTimes>());
  add(std::make_unique<InputThreads>());
  add(std::make_unique<Progress>(options.log_every));
  if (line.json) add(std::make_unique<JsonEvents>(options.log_every));
  if (options.log_dir.empty()) {
    console::Note("nothing will be saved: there is no --log-dir");
    return;
  }
  RunRecord record = line.record;
  record.model = ModelName(spec, line.run);
  record.higher_is_better = spec.higher_is_better;
  add(std::make_unique<RecordRun>(std::move(record), line.nodes,
                                  line.run.found_flags, line.training.restart));
}

}  // namespace

int Train(const TrainerSpec& given, const CommandLine& line) {
  const TrainingOptions& options = line.training;
  TrainerSpec spec = WithFlags(given, line);
  if (line.overfit_batches > 0) {
    spec = OverfitBatches(spec, line.overfit_batches);
  }
  if (line.find_rate) return SearchRate(spec, line);
  if (line.fast_dev_run) return Rehearse(spec, line);
  Trainer trainer(spec, line.run, options);
  if (line.max_steps) {
    trainer.AddHook(std::make_unique<StopAtStep>(*line.max_steps));
  }
  AddJudges(line, trainer);
  AddProfile(line, trainer);
  if (options.pipeline.any()) {
    trainer.AddHook(std::make_unique<PipelineBubble>());
  }
  if (Leads(line) || WorkersOf(line).elastic()) AddReports(spec, line, trainer);
  const BadReport bad(*line.run.bad_examples);
  const bool had_ended =
      !options.log_dir.empty() && Leads(line) && NoteBegin(options.log_dir);
  TrainingResult result;
  try {
    result = trainer.Train();
  } catch (...) {
    if (had_ended) NoteNotBegun(options.log_dir);
    throw;
  }
  NoteInterrupts(nullptr);  // what can be saved is
  bad.Print();
  const bool late = InterruptSignal() != 0 && !WorkersOf(line).several();
  if (!result.interrupted.empty() || late) {
    return ReportInterrupt(line, result.interrupted, result.steps,
                           result.checkpoint);
  }
  if (!Leads(line)) return 0;
  if (!result.stop_reason.empty()) {
    console::Note("stopped early: " + result.stop_reason);
  }
  PrintResult(spec, line, *result.evaluation, result.examples_per_second,
              result.seconds, result.dropped);
  if (!options.log_dir.empty()) NoteEnd(options.log_dir);
  return 0;
}

}  // namespace sluice::commands
