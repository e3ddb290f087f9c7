// Sums of the slices of one row, from keys that SortRows has sorted.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_ROW_SUM_H_
#define SLUICE_KERNELS_CUDA_DEVICE_ROW_SUM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

// The row and number of the slice at a place among the sorted keys, and whether
// it is the first of its row.
struct RowPlace {
  uint64_t row, slice;
  bool first;
};
__device__ inline RowPlace RowPlaceOf(const uint64_t* keys, int64_t place,
                                      int64_t slices) {
  const auto n = static_cast<uint64_t>(slices);
  const uint64_t row = keys[place] / n;
  return {row, keys[place] - row * n, place == 0 || keys[place - 1] < row * n};
}

// Element `i` of the slices of the row that begins at `place`, added to zero in
// their order.
template <typename T>
__device__ T RowSum(const uint64_t* keys, int64_t place, int64_t slices,
                    const T* values, int64_t width, int64_t i) {
  const auto n = static_cast<uint64_t>(slices);
  const uint64_t least = keys[place] / n * n;
  T sum = 0;
  for (; place < slices && keys[place] - least < n; ++place) {
    sum += values[static_cast<int64_t>(keys[place] - least) * width + i];
  }
  return sum;
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_ROW_SUM_H_
