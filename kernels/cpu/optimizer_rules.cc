#include "kernels/cpu/optimizer_rules.h"

#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {
namespace {

using optimizer::Update;
using Rule = OptimizerRule;
template <typename T>
using Loop = OptimizerLoop<T>;

template <typename R, typename T>
void Each(const Update<T>& u, const T* g, T* p, T* a, T* b, int64_t n) {
  const Update<T> own = u;  // which stores to p cannot change
  T none = 0;
  for (int64_t i = 0; i < n; ++i) {
    R()
    (own, g[i], p[i], R::kSlots > 0 ? a[i] : none, R::kSlots > 1 ? b[i] : none);
  }
}

simd::OptimizerStep StepOf(const Update<float>& u) {
  return {.learning_rate = u.learning_rate,
          .momentum = u.momentum,
          .nesterov = u.nesterov,
          .decay = u.decay,
          .beta1 = u.beta1,
          .beta2 = u.beta2,
          .eps = u.epsilon,
          .weight_decay = u.weight_decay,
          .correction1 = u.correction1,
          .correction2 = u.correction2};
}

// With the vector table's loop for the rule R.
template <typename R>
constexpr Rule RuleOf(Loop<float> simd) {
  return {R::kName,       R::kSlots,       R::kCountsSteps,
          Each<R, float>, Each<R, double>, simd};
}

void SimdAdam(const Update<float>& u, const float* g, float* p, float* m,
              float* v, int64_t n) {
  Simd().adam(StepOf(u), g, m, v, p, n);
}

constexpr Rule kRules[] = {
    RuleOf<optimizer::Sgd>([](const Update<float>& u, const float* g, float* p,
                              float*, float*,
                              int64_t n) { Simd().sgd(StepOf(u), g, p, n); }),
    RuleOf<optimizer::Momentum>(
        [](const Update<float>& u, const float* g, float* p, float* velocity,
           float*,
           int64_t n) { Simd().momentum(StepOf(u), g, velocity, p, n); }),
    RuleOf<optimizer::RmsProp>([](const Update<float>& u, const float* g,
                                  float* p, float* mean_square, float*,
                                  int64_t n) {
      Simd().rmsprop(StepOf(u), g, mean_square, nullptr, p, n);
    }),
    RuleOf<optimizer::RmsPropMomentum>(
        [](const Update<float>& u, const float* g, float* p, float* mean_square,
           float* velocity, int64_t n) {
          Simd().rmsprop(StepOf(u), g, mean_square, velocity, p, n);
        }),
    RuleOf<optimizer::Adagrad>(
        [](const Update<float>& u, const float* g, float* p, float* accumulator,
           float*,
           int64_t n) { Simd().adagrad(StepOf(u), g, accumulator, p, n); }),
    RuleOf<optimizer::Adam>(SimdAdam),
    RuleOf<optimizer::AdamW>(SimdAdam),
};

}  // namespace

std::span<const OptimizerRule> OptimizerRules() {
  return kRules;
}

}  // namespace sluice::cpu
