// What happens around training steps: saving, reporting, stopping.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_HOOK_H_
#define SLUICE_MODELS_TRAIN_HOOKS_HOOK_H_

#include <string>

#include "engine/visibility.h"
#include "models/train/run/training_run.h"

namespace SLUICE_PUBLIC sluice {

// Called by the thread that trains, in the order in which hooks were added.
// What a hook throws ends training and leaves Trainer::Train.
class Hook {
 public:
  virtual ~Hook() = default;
  // Before the first step, after the state was restored. Where a training
  // begins again in the same process, because a parameter server was gone
  // (TrainingServers::patience) or workers of an elastic job are others now,
  // all is called again with another run, and the step may go back.
  virtual void Begin(TrainingRun& /*run*/) {}
  // Whether the step with this number shall fill run.measurement().
  virtual bool Measures(const TrainingRun& /*run*/, int64_t /*step*/) const {
    return false;
  }
  virtual void AfterStep(TrainingRun& /*run*/) {}
  // Workers with their own speeds (TrainingRun::apart) are together, because
  // one of them has asked for it (AskToMeet) or has to stop.
  virtual void AtMeeting(TrainingRun& /*run*/) {}
  virtual void AfterEvaluation(TrainingRun& /*run*/,
                               const Evaluation& /*evaluation*/) {}
  // A step, the input, an evaluation or a hook threw, which ends the training.
  virtual void OnError(TrainingRun& /*run*/) noexcept {}
  // After the last step and evaluation, or when training was stopped; not
  // after an error.
  virtual void End(TrainingRun& /*run*/) {}

  // What of it a checkpoint keeps, under which name; "": nothing. After a step
  // that failed it is saved beside variables from up to `log_every` steps
  // before, though not from before an evaluation. A training that is resumed
  // gets it back before Begin. Restoring throws Error for a text that it did
  // not write.
  virtual std::string StateName() const { return ""; }
  virtual std::string SaveState() const { return ""; }
  virtual void RestoreState(const std::string& /*state*/) {}
  // What was written up to now survives whatever happens to the process or the
  // machine from its return on: the next checkpoint is what a resumed training
  // goes on from, without holes. Errors come with the next writing.
  virtual void SyncFiles() const {}
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_HOOK_H_
