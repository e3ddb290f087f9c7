// TopK and InTopK, along the rows of a matrix.
#ifndef SLUICE_KERNELS_CUDA_INDEX_TOP_H_
#define SLUICE_KERNELS_CUDA_INDEX_TOP_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::cuda {

struct TopShape {
  int64_t rows = 0, n = 0, k = 0;
};

// The k largest of each row, NaN first and equals by their place, and where
// they are. Each takes a pass over the row: meant for a small k. Numeric
// dtypes.
using TopKLauncher = Status (*)(const void* x, void* values, int64_t* indices,
                                const TopShape& shape, cudaStream_t stream);
TopKLauncher FindTopK(DType dtype);

// Whether fewer than k elements of a row are larger than that of its target; no
// if that is NaN, or the target no class. Floating dtypes; targets are int32 or
// int64.
using InTopKLauncher = Status (*)(const void* predictions, const void* targets,
                                  bool* y, const TopShape& shape,
                                  cudaStream_t stream);
InTopKLauncher FindInTopK(DType dtype, DType targets);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_INDEX_TOP_H_
