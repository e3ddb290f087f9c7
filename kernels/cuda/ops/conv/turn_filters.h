// Filters from one layout to the other (engine/semantics/filter_layout.h), many
// in one launch: matrices that are transposed, and converted on the way.
#ifndef SLUICE_KERNELS_CUDA_OPS_CONV_TURN_FILTERS_H_
#define SLUICE_KERNELS_CUDA_OPS_CONV_TURN_FILTERS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/dtype.h"
#include "engine/semantics/filter_layout.h"
#include "engine/status.h"

namespace sluice::cuda {

// Plain data: a kernel's parameter. A block takes a square at a time.
struct MatrixList {
  static constexpr int kMost = kMostFilters;
  static constexpr int kSide = 32;  // of a square

  struct Matrix {
    const void* from = nullptr;  // [rows, columns]
    void* to = nullptr;          // [columns, rows]
    int64_t rows = 0, columns = 0;
    int64_t first_chunk = 0;  // ascending: the number of its first square
  };
  Matrix at[kMost];
  int count = 0;
  int64_t squares = 0;

  // Adds a matrix. Requires room for it.
  void Add(const FilterMatrix& matrix);
};

using TurnFiltersLauncher = Status (*)(const MatrixList& list,
                                       cudaStream_t stream);
// The launcher for floating dtypes.
TurnFiltersLauncher FindTurnFilters(DType from, DType to);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_CONV_TURN_FILTERS_H_
