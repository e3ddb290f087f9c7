// Sums of the slices of one row, from keys that SortRows has sorted.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_ROW_SUM_H_
#define SLUICE_KERNELS_CUDA_DEVICE_ROW_SUM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/semantics/row_ids.h"
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
// their order: runs of kSlicesRun, and these in double.
template <typename T>
__device__ T RowSum(const uint64_t* keys, int64_t place, int64_t slices,
                    const T* values, int64_t width, int64_t i) {
  const auto n = static_cast<uint64_t>(slices);
  const uint64_t least = keys[place] / n * n;
  const auto in_row = [&] { return place < slices && keys[place] - least < n; };
  double total = 0;
  while (in_row()) {
    T run = 0;
    for (int64_t k = 0; k < kSlicesRun && in_row(); ++k, ++place) {
      run += values[static_cast<int64_t>(keys[place] - least) * width + i];
    }
    total += run;
  }
  return static_cast<T>(total);
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_ROW_SUM_H_
