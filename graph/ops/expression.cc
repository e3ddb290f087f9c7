#include "graph/ops/expression.h"

#include <utility>

#include "graph/autograd.h"
#include "graph/ops/control.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/reduce.h"

namespace sluice {

Output WithAttrsOf(const Node& node, const char* op,
                   std::vector<Operand> inputs) {
  return node.graph().Add({op, std::move(inputs), node.attrs()}).output(0);
}

Output CastTo(const Output& x, DType to) {
  return x.dtype() == to ? x : Cast(x, to);
}

// In float32 of half types: a float16 counts no further than 65504.
Output SharedByTied(const Output& tied, const Output& given,
                    const std::vector<int64_t>& axes) {
  const DType wide = ComputeDType(given.dtype());
  const Output share =
      CastTo(given, wide) / Sum(Cast(tied, wide), axes, /*keep_dims=*/true);
  return Select(tied, CastTo(share, given.dtype()), 0);
}

Outputs GradientOfExpression(const Node& node, const Outputs& dy,
                             ExpressionFn expression) {
  // Copies cut the inputs off from each other: one may depend on another.
  Outputs inputs, floating;
  for (const Output& input : node.inputs()) {
    inputs.push_back(IsFloating(input.dtype()) ? Identity(input) : input);
    if (IsFloating(input.dtype())) floating.push_back(inputs.back());
  }
  const Outputs values = expression(node, inputs);
  Outputs ys, seeds;
  for (size_t i = 0; i < dy.size(); ++i) {
    if (!dy[i].valid()) continue;
    ys.push_back(values[i]);
    seeds.push_back(dy[i]);
  }
  const Outputs gradients = Gradients(ys, floating, seeds);
  Outputs dx(inputs.size());
  for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
    if (IsFloating(inputs[i].dtype())) dx[i] = gradients[next++];
  }
  return dx;
}

}  // namespace sluice
