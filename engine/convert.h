// How elements change dtype, everywhere.
#ifndef SLUICE_ENGINE_CONVERT_H_
#define SLUICE_ENGINE_CONVERT_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/dtype.h"
#include "engine/number.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// Floats out of an integer's range become the nearest in range, NaN 0; bool is
// whether a number is not 0.
template <typename To, typename From>
To Convert(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else {
    const auto x = static_cast<ComputeType<From>>(from);
    using X = std::remove_const_t<decltype(x)>;
    if constexpr (std::is_same_v<To, bool>) {
      return x != X(0);
    } else if constexpr (std::is_floating_point_v<X> &&
                         std::is_integral_v<To>) {
      using Limits = std::numeric_limits<To>;
      // 2^digits, the first value beyond the range, is exact in any float.
      const X end = std::ldexp(X(1), Limits::digits);
      if (!(x > static_cast<X>(Limits::lowest()))) {
        return std::isnan(x) ? To(0) : Limits::lowest();
      }
      return x < end ? static_cast<To>(x) : Limits::max();
    } else {
      return To(static_cast<ComputeType<To>>(x));
    }
  }
}

// What of an integer type T is nearest to a bound, which may be an infinity.
template <typename T>
T NearestIn(const Number& bound) {
  static_assert(std::is_integral_v<T>);
  if (!bound.whole()) return Convert<T>(bound.real());
  using Limits = std::numeric_limits<T>;
  return static_cast<T>(
      std::clamp<int64_t>(bound.integer(), Limits::lowest(), Limits::max()));
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_CONVERT_H_
