#ifndef SLUICE_APPS_SLUICE_MEDIAN_H_
#define SLUICE_APPS_SLUICE_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace sluice::tool {

// The median of at least one value; of an even number the mean of the two in
// the middle.
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_MEDIAN_H_
