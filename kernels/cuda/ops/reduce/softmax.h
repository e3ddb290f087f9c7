// Softmax and its logarithm along any axis, and what losses share with them.
#ifndef SLUICE_KERNELS_CUDA_OPS_REDUCE_SOFTMAX_H_
#define SLUICE_KERNELS_CUDA_OPS_REDUCE_SOFTMAX_H_

#include <cuda_runtime.h>

#include <string_view>

#include "engine/dtype.h"
#include "engine/status.h"
#include "kernels/cuda/ops/reduce/reduce.h"

namespace sluice::cuda {

// Along n of [outer, n, inner]. y may be x.
using SoftmaxLauncher = Status (*)(const void* x, void* y,
                                   const AxisForm& shape, cudaStream_t stream);
// "Softmax" or "LogSoftmax", of a floating dtype; null otherwise.
SoftmaxLauncher FindSoftmax(std::string_view op, DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_REDUCE_SOFTMAX_H_
