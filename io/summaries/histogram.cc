#include "io/summaries/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

std::vector<double> MakeLimits() {
  std::vector<double> limits = {0};
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) {
    limits.push_back(limit);
    limits.push_back(-limit);
  }
  limits.push_back(std::numeric_limits<double>::max());
  limits.push_back(-std::numeric_limits<double>::max());
  std::sort(limits.begin(), limits.end());
  return limits;
}

const std::vector<double>& Limits() {
  static const std::vector<double> limits = MakeLimits();
  return limits;
}

// The first limit above `value`, or the last one: guessed by logarithm, which
// is much faster than a search among 1550, then corrected.
size_t BucketOf(double value) {
  const std::vector<double>& limits = Limits();
  static const double per_limit = 1 / std::log(1.1);
  const size_t zero = limits.size() / 2;
  const auto middle = static_cast<double>(zero);
  const double steps =
      std::max(0.0, std::log(std::abs(value) * 1e12) * per_limit + 1);
  const double guess = value < 0 ? middle - steps : middle + steps;
  const auto last = static_cast<double>(limits.size() - 1);
  auto i = static_cast<size_t>(std::clamp(guess, 0.0, last));
  while (i > 0 && limits[i - 1] > value) --i;
  while (i + 1 < limits.size() && limits[i] <= value) ++i;
  return i;
}

}  // namespace

Histogram HistogramOf(const Tensor& values) {
  Histogram h;
  const std::vector<double>& limits = Limits();
  std::vector<double> counts(limits.size());
  h.min = std::numeric_limits<double>::infinity();
  h.max = -h.min;
  DispatchDType(values.dtype(), [&]<typename T>(TypeTag<T>) {
    for (const T element : values.values<T>()) {
      const auto value =
          static_cast<double>(static_cast<ComputeType<T>>(element));
      if (!std::isfinite(value)) continue;
      h.min = std::min(h.min, value);
      h.max = std::max(h.max, value);
      h.num += 1;
      h.sum += value;
      h.sum_squares += value * value;
      counts[BucketOf(value)] += 1;
    }
  });
  if (h.num == 0) h.min = h.max = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    if (i > 0 && (h.limits.empty() || h.limits.back() != limits[i - 1])) {
      h.limits.push_back(limits[i - 1]);
      h.counts.push_back(0);
    }
    h.limits.push_back(limits[i]);
    h.counts.push_back(counts[i]);
  }
  return h;
}

}  // namespace sluice
