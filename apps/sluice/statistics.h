// Statistics of a tensor's values.
#ifndef SLUICE_APPS_SLUICE_STATISTICS_H_
#define SLUICE_APPS_SLUICE_STATISTICS_H_

#include <cstdint>

#include "engine/number.h"
#include "engine/tensor.h"

namespace sluice::tool {

struct Statistics {
  int64_t nan = 0;       // elements
  int64_t infinite = 0;  // elements
  int64_t finite = 0;    // elements; of these is all below, if there are any
  Number min, max;       // exact
  // Computed in double; infinite or NaN where that overflows, as it may for
  // float64.
  double mean = 0;
  double deviation = 0;  // standard, of the population
};

Statistics StatisticsOf(const Tensor& tensor);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_STATISTICS_H_
