#include "dist/collective/reduce.h"

#include <bit>
#include <limits>
#include <type_traits>

namespace sluice::dist {
namespace {

template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // its overflow is defined
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return T(static_cast<ComputeType<T>>(a) + static_cast<ComputeType<T>>(b));
  }
}

// x86 gives the first of two that are no numbers, and compilers the order.
template <typename T>
T SumOfEither(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return Sum(a, b);
  } else {
    using Compute = ComputeType<T>;
    const Compute sum = static_cast<Compute>(a) + static_cast<Compute>(b);
    return T(sum == sum ? sum : std::numeric_limits<Compute>::quiet_NaN());
  }
}

}  // namespace

void AddToEither(DType dtype, void* sum, const void* addend, int64_t count) {
  DispatchAmong<float, double, Half, BFloat16, int32_t, int64_t>(
      dtype, [&]<typename T>(TypeTag<T>) {
        auto* __restrict to = static_cast<T*>(sum);
        const auto* __restrict from = static_cast<const T*>(addend);
        for (int64_t i = 0; i < count; ++i) to[i] = SumOfEither(to[i], from[i]);
      });
}

void AddTo(DType dtype, void* sum, const void* addend, int64_t count) {
  DispatchAmong<float, double, Half, BFloat16, int32_t, int64_t>(
      dtype, [&]<typename T>(TypeTag<T>) {
        auto* __restrict to = static_cast<T*>(sum);
        const auto* __restrict from = static_cast<const T*>(addend);
        for (int64_t i = 0; i < count; ++i) to[i] = Sum(to[i], from[i]);
      });
}

void DivideBy(DType dtype, void* data, int64_t count, int divisor) {
  DispatchFloating(dtype, [&]<typename T>(TypeTag<T>) {
    using Compute = ComputeType<T>;
    auto* values = static_cast<T*>(data);
    const auto by = static_cast<Compute>(divisor);
    if (std::has_single_bit(static_cast<unsigned>(divisor))) {
      // The same bits, since 1 / by is exact, at a third of the time.
      const Compute times = 1 / by;
      for (int64_t i = 0; i < count; ++i) {
        values[i] = T(static_cast<Compute>(values[i]) * times);
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      values[i] = T(static_cast<Compute>(values[i]) / by);
    }
  });
}

}  // namespace sluice::dist
