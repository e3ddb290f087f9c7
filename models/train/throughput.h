// How fast a training goes.
#ifndef SLUICE_MODELS_TRAIN_THROUGHPUT_H_
#define SLUICE_MODELS_TRAIN_THROUGHPUT_H_

#include <cstdint>

#include "models/train/training_run.h"

namespace sluice {

// Evaluations not counted; all 0 when nothing was trained on.
struct Rates {
  double examples_per_second = 0;
  // The part of the time, 0 to 1, in which training waited for its input.
  double input_wait = 0;
};

// Rates between calls.
class Throughput {
 public:
  void Start(const TrainingRun& run);
  // Since Start or the last call.
  Rates Since(const TrainingRun& run);

 private:
  int64_t examples_ = 0;
  double seconds_ = 0;
  double waited_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_THROUGHPUT_H_
