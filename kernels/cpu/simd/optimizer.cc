// One optimizer step over an array of parameters, the rules of
// engine/semantics/optimizer.h. They are written here once more since products
// and quotients are grouped for speed: what is constant over the array is taken
// out of a quotient, (g * g) is one product in whatever order the other factors
// come. The last bits differ for that, and one text would change those of
// float64, or of the GPU, or these.
#include "kernels/cpu/simd/loop.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

using simd::OptimizerStep;

void Sgd(const OptimizerStep& step, const float* g, float* p, int64_t n) {
  const float rate = step.learning_rate;
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) p[i] -= rate * g[i];
}

void Momentum(const OptimizerStep& step, const float* g, float* v, float* p,
              int64_t n) {
  const float rate = step.learning_rate;
  const float momentum = step.momentum;
  if (step.nesterov) {
    SLUICE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      v[i] = momentum * v[i] + g[i];
      p[i] -= rate * (g[i] + momentum * v[i]);
    }
  } else {
    SLUICE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      v[i] = momentum * v[i] + g[i];
      p[i] -= rate * v[i];
    }
  }
}

void RmsProp(const OptimizerStep& step, const float* g, float* s, float* v,
             float* p, int64_t n) {
  const float rate = step.learning_rate;
  const float decay = step.decay;
  const float momentum = step.momentum;
  const float eps = step.eps;
  if (v == nullptr) {
    SLUICE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      s[i] = decay * s[i] + (1.0f - decay) * (g[i] * g[i]);
      p[i] -= rate * (g[i] / (__builtin_sqrtf(s[i]) + eps));
    }
  } else {
    SLUICE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      s[i] = decay * s[i] + (1.0f - decay) * (g[i] * g[i]);
      v[i] = momentum * v[i] + g[i] / (__builtin_sqrtf(s[i]) + eps);
      p[i] -= rate * v[i];
    }
  }
}

void Adagrad(const OptimizerStep& step, const float* g, float* s, float* p,
             int64_t n) {
  const float rate = step.learning_rate;
  const float eps = step.eps;
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    s[i] += g[i] * g[i];
    p[i] -= rate * (g[i] / (__builtin_sqrtf(s[i]) + eps));
  }
}

void Adam(const OptimizerStep& step, const float* g, float* m, float* v,
          float* p, int64_t n) {
  const float beta1 = step.beta1;
  const float beta2 = step.beta2;
  const float eps = step.eps;
  const float keep = 1.0f - step.learning_rate * step.weight_decay;
  const float rate = step.learning_rate / step.correction1;
  const float scale = 1.0f / __builtin_sqrtf(step.correction2);
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    m[i] = beta1 * m[i] + (1.0f - beta1) * g[i];
    v[i] = beta2 * v[i] + (1.0f - beta2) * (g[i] * g[i]);
    const float denominator = __builtin_sqrtf(v[i]) * scale + eps;
    p[i] = keep * p[i] - rate * (m[i] / denominator);
  }
}

}  // namespace

void AddOptimizers(simd::SimdKernels& table) noexcept {
  table.sgd = Sgd;
  table.momentum = Momentum;
  table.rmsprop = RmsProp;
  table.adagrad = Adagrad;
  table.adam = Adam;
}

}  // namespace sluice::SLUICE_ISA
