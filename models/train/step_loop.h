// The steps of a training, what comes between them, and when they end. Internal
// to models/train.
#ifndef SLUICE_MODELS_TRAIN_STEP_LOOP_H_
#define SLUICE_MODELS_TRAIN_STEP_LOOP_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/train/hooks/hook.h"
#include "models/train/run/training_run.h"
#include "models/train/trainer.h"
#include "models/train/workers/meetings.h"
#include "models/train/workers/workers.h"

namespace sluice {

// Tells the reporter how many of so many `steps` "will be" or "are" in no
// update, of which each takes the gradients of several
// (TrainingRun::accumulates); nothing where none is left over.
void NoteLeftOver(const TrainingRun& run, std::string_view when, int64_t steps);

// The step loop of one worker; the other workers have theirs, and each waits
// for the others.
class StepLoop {
 public:
  // References and pointers must outlive this. `era` is as for Meetings.
  // `regroup`, called when new workers wait to join, throws. `result` gets the
  // last evaluation, and the reason of an interruption.
  StepLoop(TrainingRun& run, const std::vector<Hook*>& hooks, int64_t era,
           std::function<void()> regroup, TrainingResult* result)
      : run_(run),
        hooks_(hooks),
        era_(era),
        regroup_(std::move(regroup)),
        result_(*result),
        agreement_(run.workers(), run.options().stop),
        meetings_(run.workers(), run.options().servers, era) {}

  // Runs steps to the training's end. Throws Error: kInvalidArgument where all
  // epochs have ended with the input, and were of fewer steps than an update
  // takes.
  void Run();

 private:
  void TellHooks(const std::function<void(Hook&)>& tell);
  Agreement::Decision Decide();
  Agreement::Decision DecideTogether(bool measure);
  Agreement::Decision DecideApart(bool measure);
  bool MeetNow();
  void AtMeeting();
  bool Step(bool measure);
  void CheckUpdated();
  void Evaluate(bool due);
  void EvaluateWhenDue();
  void End();

  TrainingRun& run_;
  const std::vector<Hook*>& hooks_;
  const int64_t era_;
  const std::function<void()> regroup_;
  TrainingResult& result_;
  const Agreement agreement_;
  Meetings meetings_;
  std::string cache_trouble_;  // that was said
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_STEP_LOOP_H_
