// Hooks, called around training steps: to save, report or stop.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_HOOK_H_
#define SLUICE_MODELS_TRAIN_HOOKS_HOOK_H_

#include <string>

#include "engine/visibility.h"
#include "models/train/run/training_run.h"

namespace SLUICE_PUBLIC sluice {

// Called by the thread that trains, in the order in which hooks were added. An
// exception of a hook ends training and is thrown by Trainer::Train.
class Hook {
 public:
  virtual ~Hook() = default;
  // Called before the first step, after the state was restored. If training
  // begins again in the same process, because a parameter server was gone
  // (TrainingServers::patience) or the workers of an elastic job have changed,
  // hooks are called again with another run, and the step and the hook's state
  // may go back.
  virtual void Begin(TrainingRun& /*run*/) {}
  // Whether step number `step` should fill run.measurement().
  virtual bool Measures(const TrainingRun& /*run*/, int64_t /*step*/) const {
    return false;
  }
  virtual void AfterStep(TrainingRun& /*run*/) {}
  // Called when workers with their own speeds (TrainingRun::apart) are
  // together, because one of them has asked for it (AskToMeet) or has to stop.
  virtual void AtMeeting(TrainingRun& /*run*/) {}
  virtual void AfterEvaluation(TrainingRun& /*run*/,
                               const Evaluation& /*evaluation*/) {}
  // Called when a step, the input, an evaluation or a hook threw, which ends
  // the training.
  virtual void OnError(TrainingRun& /*run*/) noexcept {}
  // Called after the last step and evaluation, or when training was stopped;
  // not after an error.
  virtual void End(TrainingRun& /*run*/) {}

  // The state that a checkpoint keeps of the hook, and its name; "": none. It
  // is taken when all hooks have been called for a step or an evaluation of
  // which the variables are kept, and goes with these: what is left of a
  // training that failed has both from up to `log_every` steps before, though
  // not from before an evaluation that all hooks had. A resumed training, and
  // one that begins again, restores it before Begin. RestoreState throws Error
  // for a text that SaveState did not write.
  virtual std::string StateName() const { return ""; }
  virtual std::string SaveState() const { return ""; }
  virtual void RestoreState(const std::string& /*state*/) {}
  // Makes files written up to now durable: from its return on they survive any
  // end of the process or the machine, so that a training resumed from the next
  // checkpoint has no holes in them. Errors come with the next write.
  virtual void SyncFiles() const {}
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_HOOK_H_
