// Activation functions, floating point, elementwise. Tanh is in elementwise.h.
//
// Each has a gradient op of its own that makes one pass over its operands; the
// models never call those.
#ifndef SLUICE_GRAPH_OPS_ACTIVATION_H_
#define SLUICE_GRAPH_OPS_ACTIVATION_H_

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

Output Sigmoid(Operand x);
Output Softplus(Operand x);  // log(1 + exp(x))
Output Softsign(Operand x);  // x / (1 + |x|)
Output Relu(Operand x);
Output Relu6(Operand x);  // min(max(x, 0), 6)
// x where x > 0, alpha x elsewhere; alpha >= 0.
Output LeakyRelu(Operand x, double alpha = 0.01);
// x where x > 0, alpha (exp(x) - 1) elsewhere; alpha >= 0.
Output Elu(Operand x, double alpha = 1);
Output Selu(Operand x);  // Klambauer et al., 2017
// x Phi(x) (Hendrycks and Gimpel, 2016); `approximate` takes the tanh form.
Output Gelu(Operand x, bool approximate = false);
Output Silu(Operand x);  // x sigmoid(x)

// dy times the derivative of tanh, whose value was y. For Tanh's gradient.
Output TanhGrad(Operand dy, Operand y);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_ACTIVATION_H_
