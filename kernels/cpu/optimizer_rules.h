// The optimizers' rules (engine/semantics/optimizer.h) as loops over a part of
// a variable, for the kernels that update whole variables and those that update
// some of their rows.
#ifndef SLUICE_KERNELS_CPU_OPTIMIZER_RULES_H_
#define SLUICE_KERNELS_CPU_OPTIMIZER_RULES_H_

#include <cstdint>
#include <span>

#include "engine/kernel.h"
#include "engine/semantics/optimizer.h"
#include "engine/semantics/optimizer_operands.h"

namespace sluice::cpu {

// One optimizer step on part of a variable: n elements of the gradient g, the
// parameters p and up to two slots a and b, in the order of the op's inputs.
// Every element gets the same bits wherever the parts are cut.
template <typename T>
using OptimizerLoop = void (*)(const optimizer::Update<T>& u, const T* g, T* p,
                               T* a, T* b, int64_t n);

struct OptimizerRule {
  const char* op;  // of one variable
  int slots;
  bool counts_steps;
  OptimizerLoop<float> f32;
  OptimizerLoop<double> f64;
  OptimizerLoop<float> simd;  // of the vector table
};
std::span<const OptimizerRule> OptimizerRules();

// The numbers of this step, from the inputs of an op.
template <typename T>
optimizer::Update<T> UpdateOfStep(const OptimizerOperands& at,
                                  const OptimizerParams& params,
                                  const KernelContext& c) {
  T correction1 = 1, correction2 = 1;
  if (at.step >= 0) {
    const int64_t step = *c.input<int64_t>(at.step);
    correction1 = optimizer::Correction<T>(params.beta1, step);
    correction2 = optimizer::Correction<T>(params.beta2, step);
  }
  return optimizer::UpdateOf<T>(params,
                                static_cast<T>(*c.input<float>(at.rate)),
                                correction1, correction2);
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_OPTIMIZER_RULES_H_
