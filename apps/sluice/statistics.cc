#include "apps/sluice/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "engine/convert.h"

namespace sluice::tool {
namespace {

template <typename X>
inline bool Finite(X x) {
  if constexpr (std::is_floating_point_v<X>) {
    return std::isfinite(x);
  } else {
    return true;
  }
}

template <typename X>
inline bool Nan(X x) {
  if constexpr (std::is_floating_point_v<X>) {
    return std::isnan(x);
  } else {
    return false;
  }
}

template <typename X>
Number Exactly(X x) {
  if constexpr (std::is_floating_point_v<X>) {
    return x;
  } else {
    return Convert<int64_t>(x);
  }
}

// Two passes: the second, around the mean, cancels nothing.
template <typename T>
Statistics Compute(std::span<const T> values) {
  using X = ComputeType<T>;
  Statistics s;
  X min = std::numeric_limits<X>::max();
  X max = std::numeric_limits<X>::lowest();
  double sum = 0;
  for (const T value : values) {
    const auto x = static_cast<X>(value);
    if (!Finite(x)) {
      ++(Nan(x) ? s.nan : s.infinite);
      continue;
    }
    min = std::min(min, x);
    max = std::max(max, x);
    sum += static_cast<double>(x);
  }
  s.finite = static_cast<int64_t>(values.size()) - s.nan - s.infinite;
  if (s.finite == 0) return s;
  s.min = Exactly(min);
  s.max = Exactly(max);
  const auto count = static_cast<double>(s.finite);
  s.mean = sum / count;
  // Rounding must not give equal values a deviation.
  if (std::isfinite(sum)) {
    s.mean = std::clamp(s.mean, s.min.real(), s.max.real());
  }
  double squares = 0;
  for (const T value : values) {
    const auto x = static_cast<X>(value);
    if (!Finite(x)) continue;
    const double difference = static_cast<double>(x) - s.mean;
    squares += difference * difference;
  }
  s.deviation = std::sqrt(squares / count);
  return s;
}

}  // namespace

Statistics StatisticsOf(const Tensor& tensor) {
  return DispatchDType(tensor.dtype(), [&]<typename T>(TypeTag<T>) {
    return Compute(tensor.values<T>());
  });
}

}  // namespace sluice::tool
