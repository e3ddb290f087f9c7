#include "models/train/throughput.h"

namespace sluice {

void Throughput::Start(const TrainingRun& run) {
  examples_ = run.examples();
  seconds_ = run.training_seconds();
  waited_ = run.input_seconds();
}

Rates Throughput::Since(const TrainingRun& run) {
  const auto examples = static_cast<double>(run.examples() - examples_);
  const double seconds = run.training_seconds() - seconds_;
  const double waited = run.input_seconds() - waited_;
  Start(run);
  if (seconds <= 0) return {};
  return {.examples_per_second = examples / seconds,
          .input_wait = waited / seconds};
}

}  // namespace sluice
