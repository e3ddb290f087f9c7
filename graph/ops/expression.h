// What gradients are written with.
#ifndef SLUICE_GRAPH_OPS_EXPRESSION_H_
#define SLUICE_GRAPH_OPS_EXPRESSION_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// x itself where it has that dtype.
Output CastTo(const Output& x, DType to);

// The first output of `op` with the node's attributes.
Output WithAttrsOf(const Node& node, const char* op,
                   std::vector<Operand> inputs);

// `given` where `tied` holds, shared equally along `axes` by all for which it
// does; else 0. Broadcasts.
Output SharedByTied(const Output& tied, const Output& given,
                    const std::vector<int64_t>& axes);

// Second derivatives of fused ops: the outputs of a node computed from its
// inputs by simple ops.
using ExpressionFn = Outputs (*)(const Node& node, const Outputs& inputs);

// The gradient of a node by way of an expression of equal value. For fused ops
// that are seldom differentiated, such as gradients: slower and with more
// memory than a rule of their own.
Outputs GradientOfExpression(const Node& node, const Outputs& dy,
                             ExpressionFn expression);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_EXPRESSION_H_
