// Ops about shapes: asking for one, changing one, filling one.
#ifndef SLUICE_GRAPH_OPS_SHAPE_H_
#define SLUICE_GRAPH_OPS_SHAPE_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// A shape as the caller wrote it: dimensions, or an int64 vector of the graph
// that must be known when a step is prepared. It becomes a constant of the
// graph it is used in. Dimensions may be -1 only where the function says so.
class ShapeOperand {
 public:
  ShapeOperand(const Shape& shape) : shape_(shape) {}            // NOLINT
  ShapeOperand(std::initializer_list<int64_t> d) : shape_(d) {}  // NOLINT
  ShapeOperand(const Output& tensor) : tensor_(tensor) {}        // NOLINT

  // The int64 vector, as an operand that names `location`.
  Operand In(Graph& graph, const std::source_location& location) const;

 private:
  Shape shape_;
  Output tensor_;  // empty when the dimensions are given
};

// x's elements in another shape. One dimension may be -1: what remains.
Output Reshape(Operand x, const ShapeOperand& shape);
Output ReshapeToShapeOf(Operand x, const Output& like);

// x with a dimension of size 1 put in at `axis`, in [-rank - 1, rank].
Output ExpandDims(Operand x, int64_t axis);
// x without the dimensions `axes`, which must be of size 1; empty: without all
// of size 1, in which case no dimension may be unknown.
Output Squeeze(Operand x, const std::vector<int64_t>& axes = {});

// Output dimension i is input dimension permutation[i]; empty: reversed.
Output Transpose(Operand x, const std::vector<int64_t>& permutation = {});

// x repeated along the dimensions it lacks or where it has size 1 (NumPy).
Output BroadcastTo(Operand x, const ShapeOperand& shape);
// x itself where the shapes are known to be equal.
Output BroadcastToShapeOf(Operand x, const Output& like);
// x, whose shape must be like's: where dimensions that were not known turn out
// to differ the step fails when it is prepared, also where they would
// broadcast.
Output EnsureShapeOf(Operand x, const Output& like);

// Every element the scalar `value`.
Output Fill(const ShapeOperand& shape, Operand value);
Output Fill(
    Graph& graph, const ShapeOperand& shape, const Number& value,
    DType dtype = DType::kFloat32,
    const std::source_location& location = std::source_location::current());
// x's dtype and shape, every element 0 or 1. Constants where the shape is
// known.
Output ZerosLike(Operand x);
Output OnesLike(Operand x);

// start, start + delta, ... before limit: a vector of ceil((limit - start) /
// delta) elements. The operands are scalars of one dtype that must be known
// when a step is prepared; at least one is a tensor.
Output Range(Operand start, Operand limit, Operand delta);
// int64: 0, 1, ..., limit - 1.
Output Range(
    Graph& graph, int64_t limit,
    const std::source_location& location = std::source_location::current());

// int64: the dimensions as a vector (a constant if they are known), their
// number, their product.
Output ShapeOf(Operand x);
Output Rank(Operand x);
Output Size(Operand x);

// For shape functions: InferContext::ShapeOperand where no dimension from
// `first` on may be written as -1.
Result<Shape> FullShapeOperand(const InferContext& context, int input,
                               int first = 0);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_SHAPE_H_
