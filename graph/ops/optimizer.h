// One step of an optimizer on one variable, in place. The formulas are
// PyTorch's; tests/golden/README.md lists them.
//
// `variable` and the slots are variables of one dtype and shape, `gradient`
// too; each call returns the variable's new value. learning_rate is a float32
// scalar or a number. Only what may follow a schedule is an operand.
//
// With `rows`, integers [n...], the gradient is of some rows of a variable: of
// slices [n..., a row's shape], each added to the gradient of its row, which
// may be that of others. The rows that are there and their slots are updated,
// once each; others stay as they are to the bit, decay and momentum included. A
// slice of row -1 is left out. Others out of range fail the step with
// kOutOfRange.
#ifndef SLUICE_GRAPH_OPS_OPTIMIZER_H_
#define SLUICE_GRAPH_OPS_OPTIMIZER_H_

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// variable -= learning_rate * gradient.
Output ApplySgd(Operand variable, Operand learning_rate, Operand gradient,
                const Output& rows = {});

// velocity = momentum * velocity + gradient;
// variable -= learning_rate * (nesterov ? gradient + momentum * velocity
//                                       : velocity).
struct MomentumRule {
  double momentum = 0.9;
  bool nesterov = false;
};
Output ApplyMomentum(Operand variable, Operand velocity, Operand learning_rate,
                     Operand gradient, const MomentumRule& rule = {},
                     const Output& rows = {});

// mean_square = decay * mean_square + (1 - decay) * gradient^2;
// update = gradient / (sqrt(mean_square) + epsilon);
// variable -= learning_rate * update.
struct RmsPropRule {
  double decay = 0.9;  // PyTorch's alpha
  double epsilon = 1e-8;
};
Output ApplyRmsProp(Operand variable, Operand mean_square,
                    Operand learning_rate, Operand gradient,
                    const RmsPropRule& rule = {}, const Output& rows = {});
// With momentum: velocity = momentum * velocity + update;
// variable -= learning_rate * velocity.
Output ApplyRmsPropMomentum(Operand variable, Operand mean_square,
                            Operand velocity, Operand learning_rate,
                            Operand gradient, double momentum,
                            const RmsPropRule& rule = {},
                            const Output& rows = {});

// accumulator += gradient^2;
// variable -= learning_rate * gradient / (sqrt(accumulator) + epsilon).
struct AdagradRule {
  double epsilon = 1e-10;
};
Output ApplyAdagrad(Operand variable, Operand accumulator,
                    Operand learning_rate, Operand gradient,
                    const AdagradRule& rule = {}, const Output& rows = {});

// m = beta1 * m + (1 - beta1) * gradient;
// v = beta2 * v + (1 - beta2) * gradient^2;
// variable -= learning_rate * (m / (1 - beta1^step)) /
//             (sqrt(v / (1 - beta2^step)) + epsilon).
// step: an int64 scalar, the number of this update counted from 1.
struct AdamRule {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
Output ApplyAdam(Operand variable, Operand m, Operand v, Operand learning_rate,
                 Operand step, Operand gradient, const AdamRule& rule = {},
                 const Output& rows = {});

// variable -= learning_rate * weight_decay * variable, then Adam (Loshchilov
// and Hutter, "Decoupled weight decay regularization", 2019).
struct AdamWRule {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};
Output ApplyAdamW(Operand variable, Operand m, Operand v, Operand learning_rate,
                  Operand step, Operand gradient, const AdamWRule& rule = {},
                  const Output& rows = {});

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_OPTIMIZER_H_
