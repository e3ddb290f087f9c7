// The steps of a training, what comes between them, and when they end. Internal
// to models/train.
#ifndef SLUICE_MODELS_TRAIN_STEP_LOOP_H_
#define SLUICE_MODELS_TRAIN_STEP_LOOP_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/train/hooks/hook.h"
#include "models/train/run/training_run.h"
#include "models/train/trainer.h"
#include "models/train/workers/meetings.h"
#include "models/train/workers/workers.h"

namespace sluice {

// Of one worker; the others have theirs, and each waits for them.
class StepLoop {
 public:
  // What is not copied outlives this. `era` as of Meetings. `regroup` throws:
  // some wait to come in. `result` gets the last evaluation, and what has
  // interrupted.
  StepLoop(TrainingRun& run, const std::vector<Hook*>& hooks, int64_t era,
           std::function<void()> regroup, TrainingResult* result)
      : run_(run),
        hooks_(hooks),
        era_(era),
        regroup_(std::move(regroup)),
        result_(*result),
        agreement_(run.workers(), run.options().stop),
        meetings_(run.workers(), run.options().servers, era) {}

  // To the training's end. Throws Error.
  void Run();

 private:
  Agreement::Decision Decide();
  Agreement::Decision DecideTogether(bool measure);
  Agreement::Decision DecideApart(bool measure);
  bool MeetNow();
  void AtMeeting();
  bool Step(bool measure);
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
