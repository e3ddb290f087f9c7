// The states that the metrics of metrics.h keep over a set.
#ifndef SLUICE_MODELS_NN_METRIC_STATES_H_
#define SLUICE_MODELS_NN_METRIC_STATES_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "models/nn/metrics.h"

namespace sluice {

std::unique_ptr<MetricState> StartMean();
std::unique_ptr<MetricState> StartPerplexity();
// Adds predictions and labels, int64 [n] each, in [0, classes); a prediction
// below 0 is none.
std::unique_ptr<MetricState> StartF1(int64_t classes);
std::unique_ptr<MetricState> StartAreaUnderCurve();

// Converts a number of another worker's state to a count. Throws Error, whose
// text begins with `who`, if it is not whole or outside [0, most].
int64_t CountOf(std::string_view who, double number, int64_t most);

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_METRIC_STATES_H_
