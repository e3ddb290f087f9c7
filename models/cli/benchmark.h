// Times the steps of a model by itself: the same batch again and again, so that
// no input pipeline is measured.
#ifndef SLUICE_MODELS_CLI_BENCHMARK_H_
#define SLUICE_MODELS_CLI_BENCHMARK_H_

#include <cstddef>
#include <cstdint>

#include "graph/session/session.h"
#include "models/train/run/model_spec.h"
#include "models/train/run/training_run.h"

namespace sluice {

struct BenchmarkOptions {
  bool inference = false;  // else training
  int64_t warm_up = 5;     // steps that come first and are not counted
  int64_t steps = 20;
};

// Seconds are of one step.
struct BenchmarkResult {
  int64_t examples = 0;  // in a step
  double mean = 0;
  double median = 0;
  double p90 = 0;                  // nine of ten steps take no longer
  double examples_per_second = 0;  // by the mean
  StepInfo info;                   // once all have run
  size_t variable_bytes = 0;
  size_t peak_bytes = 0;  // that the process has held at a time
};

// The model of `spec` with its first values or those of options.weights, on the
// first batch of its input. Throws Error.
BenchmarkResult Benchmark(const TrainerSpec& spec, const RunContext& run,
                          const TrainingOptions& options,
                          const BenchmarkOptions& benchmark);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_BENCHMARK_H_
