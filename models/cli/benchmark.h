// Times the steps of a model by itself: the same batch again and again, so that
// no input pipeline is measured.
#ifndef SLUICE_MODELS_CLI_BENCHMARK_H_
#define SLUICE_MODELS_CLI_BENCHMARK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/session/session.h"
#include "models/train/run/model_spec.h"
#include "models/train/run/training_run.h"

namespace sluice {

struct BenchmarkOptions {
  bool inference = false;  // else training
  int64_t warm_up = 5;     // steps that come first and are not counted
  int64_t steps = 20;
};

// Seconds are of one step; with several workers of the slowest of it.
struct BenchmarkResult {
  // options.stop's reason, of any worker, that ended it early: then there is
  // nothing else; empty: all steps were run.
  std::string interrupted;
  int workers = 1;
  int64_t examples = 0;  // in a step, of all workers
  double mean = 0;
  double median = 0;
  double p90 = 0;                  // nine of ten steps take no longer
  double examples_per_second = 0;  // by the mean
  // With several workers: the fraction of the time in which each, by rank,
  // exchanged tensors with others, or waited for them.
  std::vector<double> exchange_waits;
  StepInfo info;  // once all have run; this and bytes are of this worker
  size_t variable_bytes = 0;
  size_t peak_bytes = 0;  // that the process has held at a time
};

// Whether the device computes nothing, so that steps are planned and no more.
bool IsPlanOnly(const SessionOptions& options);

// The model of `spec` with its first values or those of options.weights, on the
// first batch of its input. Several workers (SessionOptions::collective), none
// of which is at a speed of its own, each call it for the same steps of a
// training; rank 0 alone uses the weights. Throws Error.
BenchmarkResult Benchmark(const TrainerSpec& spec, const RunContext& run,
                          const TrainingOptions& options,
                          const BenchmarkOptions& benchmark);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_BENCHMARK_H_
