// Elements in order of rank: NaN before all numbers, then the largest or the
// least, equals by their place. Of ArgMax, ArgMin and TopK.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_RANKED_H_
#define SLUICE_KERNELS_CUDA_DEVICE_RANKED_H_

#include <type_traits>

#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

// The type that elements T are compared as: one width of integers is enough.
template <typename T>
using RankOf = std::conditional_t<std::is_integral_v<T>, int64_t, ComputeOf<T>>;

// An element by value and place; at -1, none, which comes last.
template <typename V>
struct Ranked {
  V value = 0;
  int64_t at = -1;
};

// Element i of a line whose elements are `stride` apart.
template <typename T>
__device__ Ranked<RankOf<T>> RankedAt(const T* line, int64_t stride,
                                      int64_t i) {
  return {static_cast<RankOf<T>>(static_cast<ComputeOf<T>>(line[i * stride])),
          i};
}

template <typename V>
__device__ Ranked<V> ShuffleXor(const Ranked<V>& ranked, int lanes) {
  return {ShuffleXor(ranked.value, lanes), ShuffleXor(ranked.at, lanes)};
}

template <typename V>
__device__ bool Precedes(const Ranked<V>& a, const Ranked<V>& b, bool least) {
  if (a.at < 0 || b.at < 0) return b.at < a.at;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan;
  if (a_nan || a.value == b.value) return a.at < b.at;
  return least ? a.value < b.value : a.value > b.value;
}

// Combines two elements into the one that comes first.
struct Foremost {
  bool least = false;
  template <typename V>
  __device__ Ranked<V> operator()(const Ranked<V>& a,
                                  const Ranked<V>& b) const {
    return Precedes(b, a, least) ? b : a;
  }
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_RANKED_H_
