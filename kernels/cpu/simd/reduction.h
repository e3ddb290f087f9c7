// Reductions of contiguous elements, inlined into the files that use them.
#ifndef SLUICE_KERNELS_CPU_SIMD_REDUCTION_H_
#define SLUICE_KERNELS_CPU_SIMD_REDUCTION_H_

#include <cstdint>

#include "kernels/cpu/simd/vector.h"

namespace sluice::SLUICE_ISA {
namespace {

// Independent partial results, to hide the latency of an addition.
inline constexpr int kPartials = 4;

// sum over i of term(i), where load(i) gives the terms i .. i + kLanes as a
// vector. The order of additions depends on n alone.
template <typename T, typename LoadTerms, typename Term>
SLUICE_INLINE T SumTerms(int64_t n, const LoadTerms& load, const Term& term) {
  constexpr int kWidth = kLanes<T>;
  Vector<T> partial[kPartials] = {};
  int64_t i = 0;
  for (; i + kPartials * kWidth <= n; i += kPartials * kWidth) {
    for (int v = 0; v < kPartials; ++v) partial[v] += load(i + v * kWidth);
  }
  for (; i + kWidth <= n; i += kWidth) partial[0] += load(i);
  T lanes[kWidth];
  Store(lanes, (partial[0] + partial[1]) + (partial[2] + partial[3]));
  for (int width = kWidth / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  T sum = lanes[0];
  for (; i < n; ++i) sum += term(i);
  return sum;
}

template <typename T>
SLUICE_INLINE T Sum(const T* x, int64_t n) {
  return SumTerms<T>(
      n, [&](int64_t i) __attribute__((always_inline)) { return Load(x + i); },
      [&](int64_t i) { return x[i]; });
}

// The larger (kSign = 1) or smaller (-1) of two; NaN if either is.
template <int kSign, typename V>
SLUICE_INLINE V Extreme(V x, V best) {
  const auto better = kSign > 0 ? x > best : x < best;
  return (better | (x != x)) ? x : best;
}

// n >= 1.
template <int kSign, typename T>
SLUICE_INLINE T ExtremeOf(const T* x, int64_t n) {
  constexpr int kWidth = kLanes<T>;
  T best = x[0];
  int64_t i = 0;
  if (n >= kWidth) {
    Vector<T> a = Load(x);
    Vector<T> b = a;
    for (i = kWidth; i + 2 * kWidth <= n; i += 2 * kWidth) {
      a = Extreme<kSign>(Load(x + i), a);
      b = Extreme<kSign>(Load(x + i + kWidth), b);
    }
    T lanes[kWidth];
    Store(lanes, Extreme<kSign>(a, b));
    for (int j = 0; j < kWidth; ++j) best = Extreme<kSign>(lanes[j], best);
  }
  for (; i < n; ++i) best = Extreme<kSign>(x[i], best);
  return best;
}

}  // namespace
}  // namespace sluice::SLUICE_ISA

#endif  // SLUICE_KERNELS_CPU_SIMD_REDUCTION_H_
