// Pooling over images, NHWC.
#ifndef SLUICE_GRAPH_OPS_POOL_H_
#define SLUICE_GRAPH_OPS_POOL_H_

#include <array>
#include <cstdint>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/ops/padding.h"

namespace SLUICE_PUBLIC sluice {

// Pairs are (vertical, horizontal).
struct PoolOptions {
  std::array<int64_t, 2> window = {2, 2};
  std::array<int64_t, 2> strides = {2, 2};
  Padding padding = Padding::kValid;
  // Top, bottom, left, right, each less than the window; read with
  // Padding::kExplicit alone.
  std::array<int64_t, 4> explicit_padding = {0, 0, 0, 0};
};

// The largest element of every window; padding takes no part. Where several
// are largest, the gradient goes to the first, row by row.
Output MaxPool(Operand x, const PoolOptions& options = {});
// The gradient of y = MaxPool(x) with respect to x.
Output MaxPoolGrad(Operand x, Operand y, Operand dy,
                   const PoolOptions& options = {});

// The mean of every window; padding takes no part.
Output AvgPool(Operand x, const PoolOptions& options = {});
// The gradient of AvgPool with respect to x, whose shape is given as an int64
// vector. Its batch alone may be -1, which stands for that of dy.
Output AvgPoolGrad(Operand dy, Operand x_shape,
                   const PoolOptions& options = {});

// The mean over height and width: [n,h,w,c] to [n,c], or to [n,1,1,c].
Output GlobalAvgPool(Operand x, bool keep_dims = false);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_POOL_H_
