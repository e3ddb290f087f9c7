// The hooks that decide when to stop, and the one that traces.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_HOOKS_H_
#define SLUICE_MODELS_TRAIN_HOOKS_HOOKS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/trace.h"
#include "engine/visibility.h"
#include "models/train/hooks/hook.h"

namespace SLUICE_PUBLIC sluice {

// Stops once `step` steps are completed.
class StopAtStep : public Hook {
 public:
  explicit StopAtStep(int64_t step) : step_(step) {}
  void Begin(TrainingRun& run) override { AfterStep(run); }
  void AfterStep(TrainingRun& run) override;

 private:
  int64_t step_;
};

// Stops when the first metric (the loss, without metrics) has not improved on
// its best by more than `min_change` for `patience` evaluations. In a resumed
// training it goes on counting where the earlier part left off; if that has
// waited long enough already, it stops before the first step.
class EarlyStopping : public Hook {
 public:
  explicit EarlyStopping(int patience, double min_change = 0)
      : patience_(patience), min_change_(min_change) {}
  void Begin(TrainingRun& run) override { StopWhenDue(run); }
  void AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) override;
  std::string StateName() const override;
  std::string SaveState() const override;
  void RestoreState(const std::string& state) override;

 private:
  void StopWhenDue(TrainingRun& run) const;

  int patience_;
  double min_change_;
  std::optional<double> best_;
  int64_t judged_step_ = -1;  // of the newest evaluation
  int64_t waited_ = 0;
};

// Throws when the loss is not finite, naming the first node that computed such
// a value. With loss scaling, only when the scale is down to its least: until
// then such a step is skipped. To find the node, the steps since the last
// snapshot are run again and each node's output is checked; a snapshot of all
// variables is kept in memory and renewed every `interval` steps; 0: only where
// others renew it, as to save it.
class NanStop : public Hook {
 public:
  explicit NanStop(int64_t interval = 100) : interval_(interval) {}
  void Begin(TrainingRun& run) override;
  void AfterStep(TrainingRun& run) override;
  void AtMeeting(TrainingRun& run) override;
  // Checks before later hooks save the state.
  void AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) override;
  void End(TrainingRun& run) override;

 private:
  // Throws if a loss was bad.
  void Check(TrainingRun& run);
  // "'node' in step 7", found by running again; nullopt when the second run was
  // finite. Waits for the other workers.
  std::optional<std::string> FirstBad(TrainingRun& run);

  int64_t interval_;
};

// Writes a Chrome trace of steps first to last to `path`, in which the process
// "input" has a row for each thread of each stage of the input; if the input
// reads ahead, these work for later steps. With several workers each must have
// this hook: rank 0 writes one trace of all workers and parameter servers, by
// its clock. A training resumed after these steps writes no trace, with a note;
// one resumed among them writes the rest into a file of its own: "trace.json"
// from step 26 on is "trace-from-26.json".
class Profile : public Hook {
 public:
  Profile(int64_t first, int64_t last, std::string path)
      : first_(first), last_(last), path_(std::move(path)) {}
  void Begin(TrainingRun& run) override;
  void AfterStep(TrainingRun& run) override;
  void End(TrainingRun& run) override;

 private:
  void StartWhenDue(TrainingRun& run);

  int64_t first_, last_;
  std::string path_;
  std::unique_ptr<ChromeTrace> trace_;  // while it runs
  bool saved_ = false;
  bool begun_ = false;
};

// The value by which evaluations are compared, higher being better: the first
// metric, or else the loss, with its sign changed if lower is better.
double JudgedBy(const TrainerSpec& spec, const Evaluation& evaluation);

// SaveHooks puts the hooks' states into TrainingState::extra, but for those
// that are there already; RestoreHooks gives them back to the hooks. `source`
// is for messages. Throws Error(kDataLoss) for a state that cannot be read.
void SaveHooks(const std::vector<const Hook*>& hooks, TrainingState* state);
void RestoreHooks(const std::vector<Hook*>& hooks, const TrainingState& state,
                  const std::string& source);
// Gives all workers the state that rank 0 begins with, the hooks' included.
// Waits.
void BeginTogether(const std::vector<Hook*>& hooks, TrainingRun& run);
// Puts the hooks' states, as they are now, into the run's snapshot, if there is
// one of its present step. To be called when all hooks have done their part of
// that step or evaluation: whoever goes on from the snapshot then has states of
// the same moment, and an evaluation that failed half-way is made anew.
void KeepStates(const std::vector<const Hook*>& hooks, TrainingRun& run);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_HOOKS_H_
