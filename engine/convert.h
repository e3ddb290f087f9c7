// How elements change dtype, everywhere.
#ifndef SLUICE_ENGINE_CONVERT_H_
#define SLUICE_ENGINE_CONVERT_H_

#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/dtype.h"

namespace sluice {

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

// The double nearest to x that an integer type T holds; x where T is a float.
template <typename T>
double NearestIn(double x) {
  if constexpr (!std::numeric_limits<T>::is_integer) {
    return x;
  } else {
    using Limits = std::numeric_limits<T>;
    const double least = static_cast<double>(Limits::lowest());
    // The largest int64 is not a double: one step of 2^10 less is.
    const double most =
        static_cast<double>(Limits::max() - (sizeof(T) == 8 ? 1023 : 0));
    return x < least ? least : (x > most ? most : x);
  }
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_CONVERT_H_
