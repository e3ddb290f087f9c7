// Reductions over one dimension, or neighbouring ones taken as one: x seen as
// [outer, n, inner] becomes [outer, inner]. Columns are [1, n, inner], rows
// [outer, n, 1], everything [1, n, 1].
#ifndef SLUICE_KERNELS_CUDA_REDUCE_H_
#define SLUICE_KERNELS_CUDA_REDUCE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::cuda {

struct ReduceShape {
  int64_t outer = 1, n = 1, inner = 1;
};

// Bytes of device memory that a reduction needs beside its operands: a long n
// is cut into segments, whose results a second pass combines. Cuts and order
// depend on the shape, and on whether x is 16-byte aligned, alone: so do the
// bits.
size_t ReduceWorkspace(const ReduceShape& shape, DType dtype);

using ReduceLauncher = Status (*)(const void* x, void* y,
                                  const ReduceShape& shape, void* workspace,
                                  cudaStream_t stream);
// "Sum", "Mean", "Prod", "Max" or "Min", of a floating dtype; null otherwise.
// Sums of half types are taken in float and rounded once. Over no elements: 0,
// NaN, 1, -infinity and infinity.
ReduceLauncher FindReduce(std::string_view op, DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_REDUCE_H_
