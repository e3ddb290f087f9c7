#include "models/train/throughput.h"

namespace sluice {

void Throughput::Start(const TrainingRun& run) {
  examples_ = run.examples();
  seconds_ = run.training_seconds();
}

double Throughput::Since(const TrainingRun& run) {
  const auto examples = static_cast<double>(run.examples() - examples_);
  const double seconds = run.training_seconds() - seconds_;
  Start(run);
  return seconds > 0 ? examples / seconds : 0;
}

}  // namespace sluice
