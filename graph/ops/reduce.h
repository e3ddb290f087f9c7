// Reductions. `axes` may be negative, counted from the end; none means all of
// them. With keep_dims the reduced dimensions stay, with size 1.
//
// Sums keep several partial sums, combined in an order that depends on shapes
// alone; float16 and bfloat16 accumulate in float.
#ifndef SLUICE_GRAPH_OPS_REDUCE_H_
#define SLUICE_GRAPH_OPS_REDUCE_H_

#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/ops/shape.h"

namespace SLUICE_PUBLIC sluice {

using Axes = std::vector<int64_t>;

Output Sum(Operand x, const Axes& axes = {}, bool keep_dims = false);
Output Prod(Operand x, const Axes& axes = {}, bool keep_dims = false);
// Floating point. The mean of no elements is NaN.
Output Mean(Operand x, const Axes& axes = {}, bool keep_dims = false);
// NaN if any element is; of no elements the least or greatest value of the
// dtype. Elements that tie share the gradient equally.
Output Max(Operand x, const Axes& axes = {}, bool keep_dims = false);
Output Min(Operand x, const Axes& axes = {}, bool keep_dims = false);
// log(sum(exp(x))) without overflow. Floating point.
Output LogSumExp(Operand x, const Axes& axes = {}, bool keep_dims = false);
// bool.
Output Any(Operand x, const Axes& axes = {}, bool keep_dims = false);
Output All(Operand x, const Axes& axes = {}, bool keep_dims = false);

// int64 position along `axis` of the largest or smallest element, the first
// among equals; a NaN counts as larger, and smaller, than all. The axis may not
// be empty.
Output ArgMax(Operand x, int64_t axis = -1, bool keep_dims = false);
Output ArgMin(Operand x, int64_t axis = -1, bool keep_dims = false);

// A bool scalar: whether no element of any of them, which share a floating
// dtype, is infinite or NaN.
Output AllFinite(const std::vector<Output>& tensors);

struct CumSumOptions {
  bool exclusive = false;  // element i leaves out x[i]
  bool reverse = false;    // sums run from the end
};
// Running sums along `axis`.
Output CumSum(Operand x, int64_t axis, const CumSumOptions& options = {});

// x summed over the dimensions that broadcasting `shape` to x's shape would
// repeat; has that shape, none of which may be written as -1.
Output SumTo(Operand x, const ShapeOperand& shape);
// SumTo the shape of `like`; x itself if the shapes are known to be equal.
// Undoes broadcasting in gradients.
Output SumToShapeOf(Operand x, Operand like);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_REDUCE_H_
