// How fast a training goes.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_THROUGHPUT_H_
#define SLUICE_MODELS_TRAIN_HOOKS_THROUGHPUT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "models/train/run/training_run.h"

namespace SLUICE_PUBLIC sluice {

// Evaluations not counted; all 0 when nothing was trained on.
struct Rates {
  double examples_per_second = 0;
  // The part of the time, 0 to 1, in which training waited for its input.
  double input_wait = 0;
  // And in which its steps exchanged tensors with other workers, or waited for
  // them or for parameter servers (TrainingRun::exchange_seconds).
  double exchange_wait = 0;
  // The same of each worker, by rank; empty where there is one, or nothing was
  // heard of the others yet. Examples are those of workers with their own
  // speeds, and then their sum is that of all.
  std::vector<double> worker_examples_per_second = {};
  std::vector<double> worker_exchange_waits = {};
  // TrainingRun::staleness of the updates meanwhile.
  std::map<int64_t, int64_t> staleness = {};
  // The stage of the input that was busiest (io/pipeline/stage_times.h), of
  // what was measured; empty where nothing was so far.
  std::string input_stage = {};
};

// Of counts by value, which are not empty.
double MeanOf(const std::map<int64_t, int64_t>& counts);

// Rates between calls. Those of other workers are of the steps between which
// they were last heard.
class Throughput {
 public:
  void Start(const TrainingRun& run);
  // Since Start or the last call.
  Rates Since(const TrainingRun& run);

 private:
  void SeeWorkers(const TrainingRun& run);

  int64_t examples_ = 0;
  double seconds_ = 0;
  double waited_ = 0;
  double exchanged_ = 0;
  std::vector<WorkerTimes> heard_;
  std::vector<double> worker_rates_, worker_waits_;  // by rank
  std::map<int64_t, int64_t> staleness_;
  // Of the input, when it was last known which was the busiest.
  std::vector<StageTime> stages_;
  int64_t measured_ = 0;
  std::string busiest_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_THROUGHPUT_H_
