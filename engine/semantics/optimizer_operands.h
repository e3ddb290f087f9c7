// Where the operands of an optimizer's op are, for the kernels of all devices.
#ifndef SLUICE_ENGINE_SEMANTICS_OPTIMIZER_OPERANDS_H_
#define SLUICE_ENGINE_SEMANTICS_OPTIMIZER_OPERANDS_H_

#include "engine/kernel.h"

namespace sluice {

// One variable, then its slots, the scalars and the gradient; or a list of
// variables, then those by kind, the scalars and the gradients' scale. Last
// comes `apply`, which one variable may lack. The scalars are the learning rate
// and, of optimizers that count their steps, the step.
struct OptimizerOperands {
  int variables = 1;
  int slots = 0;     // of each variable
  int gradient = 0;  // of the first variable
  int rate = 0;
  int step = -1;            // -1: none
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
      const int last = static_cast<int>(spec.inputs.size()) - 1;
      if (last > gradient) apply = last;
    }
    if (counts_steps) step = rate + 1;
  }
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_OPTIMIZER_OPERANDS_H_
