#include "models/cli/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include "models/cli/interrupt.h"
#include "models/train/run/inference.h"
#include "models/train/run/memory_check.h"

namespace sluice {
namespace {

// Runs the steps and fills in the figures of time.
void Measure(const BenchmarkOptions& options, const std::function<void()>& step,
             BenchmarkResult* result) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int64_t i = -options.warm_up; i < options.steps; ++i) {
    if (InterruptSignal() != 0) {
      throw Error(Code::kCancelled, "interrupted before all steps were run");
    }
    const auto begin = Clock::now();
    step();
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (i >= 0) seconds.push_back(took.count());
  }
  std::sort(seconds.begin(), seconds.end());
  const auto n = static_cast<double>(seconds.size());
  result->mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / n;
  const size_t middle = seconds.size() / 2;
  result->median = seconds.size() % 2 == 1
                       ? seconds[middle]
                       : (seconds[middle - 1] + seconds[middle]) / 2;
  result->p90 = seconds[static_cast<size_t>(std::ceil(0.9 * n)) - 1];
  result->examples_per_second =
      static_cast<double>(result->examples) / result->mean;
  result->peak_bytes = PeakMemory();
}

Example FirstBatch(const Dataset& input) {
  Example batch;
  if (!input.MakeIterator().Next(&batch).ValueOrThrow()) {
    throw Error(Code::kInvalidArgument, "the input has no examples");
  }
  return batch;
}

}  // namespace

BenchmarkResult Benchmark(const TrainerSpec& spec, const RunContext& run,
                          const TrainingOptions& options,
                          const BenchmarkOptions& benchmark) {
  BenchmarkResult result;
  RunContext context = run;
  if (benchmark.inference) {
    context.mode = Mode::kPredict;
    Inference inference(spec, context, options.session);
    inference.Initialize();
    if (!options.weights.empty()) inference.LoadWeights(options.weights);
    inference.Freeze();
    inference.PreparePrediction();
    const Example batch = FirstBatch(inference.input());
    result.examples = RowsOf(batch);
    result.variable_bytes = inference.session().variable_bytes();
    Measure(
        benchmark, [&] { inference.Predict(batch); }, &result);
    result.info = inference.prediction_info();
    return result;
  }
  context.mode = Mode::kTrain;
  TrainingRun training(spec, context, options);
  if (!options.weights.empty()) training.LoadWeights();
  // The first step takes the batch that the others use again.
  training.Step(/*measure=*/false);
  result.examples = RowsOf(training.batch());
  result.variable_bytes = training.session().variable_bytes();
  Measure(
      benchmark, [&] { training.TrainOnBatch(/*measure=*/false); }, &result);
  training.Finish();
  result.info = training.InfoOfRuns();
  return result;
}

}  // namespace sluice
