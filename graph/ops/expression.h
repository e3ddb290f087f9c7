// Second derivatives of fused ops.
#ifndef SLUICE_GRAPH_OPS_EXPRESSION_H_
#define SLUICE_GRAPH_OPS_EXPRESSION_H_

#include "graph/graph.h"

namespace sluice {

// The outputs of a node computed from its inputs by simple ops.
using ExpressionFn = Outputs (*)(const Node& node, const Outputs& inputs);

// The gradient of a node by way of an expression of equal value. For fused ops
// that are seldom differentiated, such as gradients: slower and with more
// memory than a rule of their own.
Outputs GradientOfExpression(const Node& node, const Outputs& dy,
                             ExpressionFn expression);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_EXPRESSION_H_
