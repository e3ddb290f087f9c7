// Reports of training: lines for people on stderr, JSON for programs on
// stdout.
#ifndef SLUICE_MODELS_CLI_PROGRESS_H_
#define SLUICE_MODELS_CLI_PROGRESS_H_

#include <chrono>
#include <optional>
#include <string>

#include "models/train/hooks/hook.h"
#include "models/train/hooks/throughput.h"

namespace sluice {

// Where stderr is a terminal, one line that is renewed several times a second;
// else a line every `every` steps. And a line for each evaluation. Loss and
// metrics are those of the newest measured batch, nothing being smoothed: the
// figures that TensorBoard and JSON have for that step.
class Progress : public Hook {
 public:
  explicit Progress(int64_t every) : every_(every) {}
  void Begin(TrainingRun& run) override;
  bool Measures(const TrainingRun& run, int64_t step) const override;
  void AfterStep(TrainingRun& run) override;
  void AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) override;
  void End(TrainingRun& run) override;

 private:
  std::string Line(TrainingRun& run);

  int64_t every_;
  Throughput throughput_;
  Rates rates_;  // as last shown
  std::chrono::steady_clock::time_point shown_;
};

// Before the first step, what each pass over its graph took and left.
class PassTimes : public Hook {
 public:
  void Begin(TrainingRun& run) override;
};

// Before the first step, how many threads compute and how many are the input's.
// After each epoch, and at the end, how many its maps run on whose number is
// chosen (MapOptions::threads = 0), where that has changed.
class InputThreads : public Hook {
 public:
  void Begin(TrainingRun& run) override;
  void AfterStep(TrainingRun& run) override;
  void End(TrainingRun& run) override { Say(run); }

 private:
  void Say(const TrainingRun& run);

  double epoch_ = 0;
  std::string said_;
};

// Says at the end how much of the time stages of a pipeline were idle. For all
// processes.
class PipelineBubble : public Hook {
 public:
  void End(TrainingRun& run) override;
};

// Before the first step, the model's layers (models/cli/model_summary.h).
class ShowSummary : public Hook {
 public:
  void Begin(TrainingRun& run) override;
};

// One JSON object per line on stdout: {"event":"step",...} every `every`
// steps, {"event":"evaluation",...}.
class JsonEvents : public Hook {
 public:
  explicit JsonEvents(int64_t every) : every_(every) {}
  void Begin(TrainingRun& run) override;
  bool Measures(const TrainingRun& run, int64_t step) const override;
  void AfterStep(TrainingRun& run) override;
  void AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) override;

 private:
  int64_t every_;
  bool first_ = true;
  Throughput throughput_;
};

// "loss 0.0312, accuracy 99.12 %": metrics between 0 and 1 that are called
// accuracy as per cent.
std::string Describe(const std::vector<std::pair<std::string, double>>& values);

// Seconds since the process began.
double ProcessSeconds();

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_PROGRESS_H_
