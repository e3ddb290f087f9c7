// How fast a training goes.
#ifndef SLUICE_MODELS_TRAIN_THROUGHPUT_H_
#define SLUICE_MODELS_TRAIN_THROUGHPUT_H_

#include <cstdint>

#include "models/train/training_run.h"

namespace sluice {

// Examples per second between calls, evaluations not counted.
class Throughput {
 public:
  void Start(const TrainingRun& run);
  // Since Start or the last call; 0 when nothing was trained on.
  double Since(const TrainingRun& run);

 private:
  int64_t examples_ = 0;
  double seconds_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_THROUGHPUT_H_
