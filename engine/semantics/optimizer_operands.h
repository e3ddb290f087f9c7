// Where the operands of an optimizer's op are and what its attributes say, for
// the kernels of all devices.
#ifndef SLUICE_ENGINE_SEMANTICS_OPTIMIZER_OPERANDS_H_
#define SLUICE_ENGINE_SEMANTICS_OPTIMIZER_OPERANDS_H_

#include <algorithm>

#include "engine/kernel.h"
#include "engine/semantics/optimizer.h"

namespace sluice {

// One variable, then its slots, the scalars and the gradient; or a list of
// variables, then those by kind, the scalars and the gradients' scale. Last
// comes `apply`, which one variable may lack. The scalars are the learning rate
// and, of optimizers that count their steps, the step. Of a gradient of some
// rows, the rows follow the gradient.
struct OptimizerOperands {
  int variables = 1;
  int slots = 0;     // of each variable
  int gradient = 0;  // of the first variable
  int rate = 0;
  int step = -1;            // -1: none
  int rows = -1;            // -1: none
  int gradient_scale = -1;  // -1: none
  int apply = -1;           // -1: none

  // `op_slots`: how many the op has for a variable.
  OptimizerOperands(const KernelSpec& spec, int op_slots, bool counts_steps)
      : slots(op_slots) {
    const int scalars = counts_steps ? 2 : 1;
    if (spec.attrs.Has("variables")) {
      variables = static_cast<int>(spec.attrs.Int("variables"));
      gradient = (1 + slots) * variables;
      rate = gradient + variables;
      gradient_scale = rate + scalars;
      apply = gradient_scale + 1;
    } else {
      rate = 1 + slots;
      gradient = rate + scalars;
      if (spec.op.ends_with(optimizer::kRowsSuffix)) rows = gradient + 1;
      const int last = static_cast<int>(spec.inputs.size()) - 1;
      if (last > std::max(gradient, rows)) apply = last;
    }
    if (counts_steps) step = rate + 1;
  }
};

inline OptimizerParams OptimizerParamsOf(const Attributes& attrs) {
  const auto number = [&](const char* name) {
    return attrs.Has(name) ? attrs.Float(name) : 0.0;
  };
  OptimizerParams params;
  params.momentum = number("momentum");
  params.decay = number("decay");
  params.beta1 = number("beta1");
  params.beta2 = number("beta2");
  params.epsilon = number("epsilon");
  params.weight_decay = number("weight_decay");
  params.nesterov = attrs.Has("nesterov") && attrs.Bool("nesterov");
  params.gradient_decay = number("gradient_decay");
  if (attrs.Has("decayed")) params.decayed = attrs.Int("decayed");
  return params;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_OPTIMIZER_OPERANDS_H_
