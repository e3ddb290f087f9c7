#include "models/train/hooks/throughput.h"

#include <utility>

namespace sluice {

void Throughput::Start(const TrainingRun& run) {
  examples_ = run.examples();
  seconds_ = run.training_seconds();
  waited_ = run.input_seconds();
  exchanged_ = run.exchange_seconds();
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

Rates Throughput::Since(const TrainingRun& run) {
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
  return {.examples_per_second = examples / seconds,
          .input_wait = waited / seconds,
          .exchange_wait = exchanged / seconds,
          .staleness = std::move(staleness),
          .input_stage = busiest_};
}

}  // namespace sluice
