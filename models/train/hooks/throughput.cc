#include "models/train/hooks/throughput.h"

#include <numeric>
#include <utility>

namespace sluice {

void Throughput::Start(const TrainingRun& run) {
  examples_ = run.examples();
  seconds_ = run.training_seconds();
  waited_ = run.input_seconds();
  exchanged_ = run.exchange_seconds();
  heard_ = run.times_of_all();
  staleness_ = run.staleness();
}

double MeanOf(const std::map<int64_t, int64_t>& counts) {
  double sum = 0, number = 0;
  for (const auto& [value, count] : counts) {
    sum += static_cast<double>(value * count);
    number += static_cast<double>(count);
  }
  return sum / number;
}

// One that has done no step since it was heard last is as fast as it was.
void Throughput::SeeWorkers(const TrainingRun& run) {
  const std::vector<WorkerTimes>& now = run.times_of_all();
  heard_.resize(now.size());
  worker_rates_.resize(now.size());
  worker_waits_.resize(now.size());
  for (size_t rank = 0; rank < now.size(); ++rank) {
    const auto since = [&](int64_t WorkerTimes::*figure) {
      return static_cast<double>(now[rank].*figure - heard_[rank].*figure);
    };
    const double trained = since(&WorkerTimes::trained);
    if (trained <= 0) continue;
    worker_rates_[rank] = since(&WorkerTimes::examples) / trained * 1e6;
    worker_waits_[rank] = since(&WorkerTimes::waited) / trained;
  }
}

Rates Throughput::Since(const TrainingRun& run) {
  SeeWorkers(run);
  const auto examples = static_cast<double>(run.examples() - examples_);
  const double seconds = run.training_seconds() - seconds_;
  const double waited = run.input_seconds() - waited_;
  const double exchanged = run.exchange_seconds() - exchanged_;
  std::map<int64_t, int64_t> staleness = run.staleness();
  for (const auto& [value, count] : staleness_) staleness[value] -= count;
  std::erase_if(staleness, [](const auto& entry) { return entry.second == 0; });
  Start(run);
  if (seconds <= 0) return {};
  // What threads that read ahead finish after a step that was measured says
  // nothing of the others.
  const int64_t measured = run.steps_with_measured_input();
  if (std::exchange(measured_, measured) != measured) {
    std::vector<StageTime> stages = run.input_stages().Read();
    std::string busiest = BusiestStage(stages_, stages);
    if (!busiest.empty()) busiest_ = std::move(busiest);
    stages_ = std::move(stages);
  }
  Rates rates = {.examples_per_second = examples / seconds,
                 .input_wait = waited / seconds,
                 .exchange_wait = exchanged / seconds,
                 .worker_exchange_waits = worker_waits_,
                 .staleness = std::move(staleness),
                 .input_stage = busiest_};
  if (!run.apart() || worker_rates_.empty()) return rates;
  rates.worker_examples_per_second = worker_rates_;
  // Else `examples` takes the others to be as fast as this one.
  if (run.steps_at_once() > 1) {
    rates.examples_per_second =
        std::accumulate(worker_rates_.begin(), worker_rates_.end(), 0.0);
  }
  return rates;
}

}  // namespace sluice
