// The speed of a training.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_THROUGHPUT_H_
#define SLUICE_MODELS_TRAIN_HOOKS_THROUGHPUT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "models/train/run/training_run.h"

namespace SLUICE_PUBLIC sluice {

// Rates without evaluations; all 0 if nothing was trained on.
struct Rates {
  double examples_per_second = 0;
  // The fraction of the time in which training waited for its input.
  double input_wait = 0;
  // The fraction of the time in which steps exchanged tensors with other
  // workers, or waited for them or for parameter servers
  // (TrainingRun::exchange_seconds).
  double exchange_wait = 0;
  // The rates and exchange waits of each worker, by rank; empty with one
  // worker, or if nothing was heard of the others yet. Examples are given for
  // workers with their own speeds, and then add up to examples_per_second.
  std::vector<double> worker_examples_per_second = {};
  std::vector<double> worker_exchange_waits = {};
  // TrainingRun::staleness of the updates in this time.
  std::map<int64_t, int64_t> staleness = {};
  // The busiest stage of the input (io/pipeline/stage_times.h) as far as was
  // measured; empty if nothing was yet.
  std::string input_stage = {};
};

// The mean of values, given by their counts, which must not be empty.
double MeanOf(const std::map<int64_t, int64_t>& counts);

// Measures rates between calls. Rates of other workers are for the steps
// between which these were last heard.
class Throughput {
 public:
  void Start(const TrainingRun& run);
  // The rates since Start or the last call.
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
  // The input's stages when the busiest was last known.
  std::vector<StageTime> stages_;
  int64_t measured_ = 0;
  std::string busiest_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_THROUGHPUT_H_
