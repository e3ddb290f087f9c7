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

  // Runs steps to the training's end. Throws Error.
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
