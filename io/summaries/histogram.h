// The distribution of a tensor's values. Internal to io.
#ifndef SLUICE_IO_SUMMARIES_HISTOGRAM_H_
#define SLUICE_IO_SUMMARIES_HISTOGRAM_H_

#include <vector>

#include "engine/tensor.h"

namespace sluice {

// A histogram of the finite elements; min and max are 0 when there are none.
struct Histogram {
  double min = 0;
  double max = 0;
  double num = 0;
  double sum = 0;
  double sum_squares = 0;
  // counts[i] elements in [limits[i - 1], limits[i]); empty buckets are left
  // out but for one before each run of others, which gives its lower limit.
  std::vector<double> limits;
  std::vector<double> counts;
};

// TensorFlow's limits: 0 and +-1e-12 * 1.1^k up to 1e20.
Histogram HistogramOf(const Tensor& values);

}  // namespace sluice

#endif  // SLUICE_IO_SUMMARIES_HISTOGRAM_H_
