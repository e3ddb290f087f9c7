// Reductions over any dimensions.
#ifndef SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_H_
#define SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/dtype.h"
#include "engine/semantics/axis_form.h"
#include "engine/shape.h"
#include "engine/status.h"

namespace sluice::cuda {

// One pass over memory, [outer, n, inner] to [outer, segments, inner]: a long n
// is cut into segments, whose results the next pass combines.
struct ReducePass {
  AxisForm shape;
  int64_t segment = 1;  // elements of n
  int64_t segments = 1;

  int64_t results() const { return shape.outer * segments * shape.inner; }
};

// The passes that reduce some of x's dimensions, innermost first. Cuts and
// order depend on the shape and on whether x is 16-byte aligned alone: so do
// the bits.
struct ReducePlan {
  std::vector<ReducePass> passes;  // at least one
  int64_t count = 1;               // of elements that go into a result

  ReducePlan(const Shape& x, const std::vector<bool>& reduced);
  // Results of all passes but the last, which are kept between passes.
  int64_t states() const;
};

using ReduceLauncher = Status (*)(const void* x, void* y,
                                  const ReducePlan& plan, void* workspace,
                                  cudaStream_t stream);
struct Reduction {
  ReduceLauncher launch = nullptr;  // null if there is none
  size_t state_bytes = 0;           // of workspace, for each of plan.states()
};
// "Sum", "Prod", "Max" or "Min" of a numeric dtype; "Mean", "LogSumExp" or
// "L2Loss" (half the sum of squares) of a floating dtype; "Any" or "All" of
// bool. Half types are computed in float and rounded once, sums and products of
// integers wrap around. Over no elements: 0, 1, the least and the largest, NaN,
// -infinity, 0, false and true.
Reduction FindReduce(std::string_view op, DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_H_
