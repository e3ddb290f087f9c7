#include "models/cli/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/device.h"
#include "models/train/hooks/hooks.h"
#include "models/train/run/inference.h"
#include "models/train/run/memory_check.h"
#include "models/train/workers/workers.h"

namespace sluice {
namespace {

// Replaces each of a worker's seconds by those of the slowest worker.
std::vector<double> OfSlowest(const Workers& workers,
                              const std::vector<double>& mine) {
  std::vector<double> all(mine.size() * static_cast<size_t>(workers.size()));
  workers.Gather("seconds", mine.data(),
                 static_cast<int64_t>(mine.size() * sizeof(double)),
                 all.data());
  std::vector<double> slowest = mine;
  for (size_t i = 0; i < all.size(); ++i) {
    double& seconds = slowest[i % mine.size()];
    seconds = std::max(seconds, all[i]);
  }
  return slowest;
}

// Runs the steps, which all workers begin at the same time, and fills in the
// figures of time; `exchanged` tells how long this worker has exchanged so far.
void Measure(const BenchmarkOptions& options, const Workers& workers,
             const StopToken* stop, const std::function<void()>& step,
             const std::function<double()>& exchanged,
             BenchmarkResult* result) {
  using Clock = std::chrono::steady_clock;
  const Agreement agreement(workers, stop);
  std::vector<double> seconds;
  double begun = 0;
  for (int64_t i = -options.warm_up; i < options.steps; ++i) {
    result->interrupted = agreement.Reason();
    if (!result->interrupted.empty()) return;
    if (i == 0) begun = exchanged();
    const auto begin = Clock::now();
    step();
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (i >= 0) seconds.push_back(took.count());
  }
  const auto n = static_cast<double>(seconds.size());
  const auto mean = [&] {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) / n;
  };
  if (workers.several()) {
    result->exchange_waits = workers.GatherEach(
        "exchange waits", (exchanged() - begun) / (n * mean()));
    seconds = OfSlowest(workers, seconds);
  }
  std::sort(seconds.begin(), seconds.end());
  result->workers = workers.size();
  result->mean = mean();
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

bool IsPlanOnly(const SessionOptions& options) {
  return ParseDeviceName(options.devices[0]).ValueOrThrow().type ==
         DeviceType::kNull;
}

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
        benchmark, Workers(nullptr), options.stop,
        [&] { inference.Predict(batch); }, [] { return 0.0; }, &result);
    result.info = inference.prediction_info();
    return result;
  }
  context.mode = Mode::kTrain;
  TrainingRun training(spec, context, options);
  const Workers& workers = training.workers();
  if (!options.weights.empty() && workers.leads()) training.LoadWeights();
  BeginTogether({}, training);
  // The first step takes the batch that the others use again.
  training.Step(/*measure=*/false);
  result.examples = WholeRowsOf(training.batch());
  result.variable_bytes = training.session().variable_bytes();
  Measure(
      benchmark, workers, options.stop,
      [&] { training.TrainOnBatch(/*measure=*/false); },
      [&] { return training.exchange_seconds(); }, &result);
  training.Finish();
  result.info = training.InfoOfRuns();
  return result;
}

}  // namespace sluice
