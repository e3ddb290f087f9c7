// TopK by sorting the rows, in steps of order n log n, not k n, for each. For
// TopK alone (kernels/cuda/ops/array/index.h), which says when.
#ifndef SLUICE_KERNELS_CUDA_OPS_REDUCE_TOP_K_SORTED_H_
#define SLUICE_KERNELS_CUDA_OPS_REDUCE_TOP_K_SORTED_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "kernels/cuda/ops/array/index.h"

namespace sluice::cuda {

size_t SortedTopKWorkspace(const TopKShape& shape);  // bytes of device memory

Status SortedTopK(const TopKShape& shape, DType dtype, const void* x,
                  void* values, int64_t* indices, void* workspace,
                  cudaStream_t stream);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_REDUCE_TOP_K_SORTED_H_
