// Reductions over any dimensions.
#ifndef SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_H_
#define SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/dtype.h"
#include "engine/semantics/reduce_plan.h"
#include "engine/status.h"

namespace sluice::cuda {

using ReduceLauncher = Status (*)(const void* x, void* y,
                                  const ReducePlan& plan, void* workspace,
                                  cudaStream_t stream);
struct Reduction {
  ReduceLauncher launch = nullptr;  // null if there is none
  size_t state_bytes = 0;           // of workspace, for each of plan.states()
};
// "Sum", "Prod", "Max" or "Min" of a numeric dtype; "Mean", "LogSumExp",
// "L2Loss" (half the sum of squares) or "SquaredNorm" (the sum, in float64) of
// a floating dtype; "Any" or "All" of bool. Half types are computed in float
// and rounded once, sums and products of integers wrap around. Over no
// elements: 0, 1, the least and the largest, NaN, -infinity, 0, 0, false and
// true.
Reduction FindReduce(std::string_view op, DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_H_
