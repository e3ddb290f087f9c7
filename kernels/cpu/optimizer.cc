// Optimizer steps, of one variable or a list of them. The loops here are the
// reference, for float32 and float64; above them float32 has those of the
// vector table.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/convert.h"
#include "engine/semantics/optimizer_operands.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/tensor_list.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per piece of work

// One optimizer step on part of a variable: n elements of the gradient g, the
// parameters p and up to two slots a and b, in the order of the op's inputs.
template <typename T>
struct Update {
  T learning_rate, momentum, decay, beta1, beta2, epsilon, weight_decay;
  bool nesterov;
  T correction1 = 1, correction2 = 1;  // Adam's 1 - beta^step
};
template <typename T>
using Loop = void (*)(const Update<T>& u, const T* g, T* p, T* a, T* b,
                      int64_t n);

template <typename T>
void Sgd(const Update<T>& u, const T* g, T* p, T*, T*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] -= u.learning_rate * g[i];
}

template <typename T>
void Momentum(const Update<T>& u, const T* g, T* p, T* velocity, T*,
              int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    velocity[i] = u.momentum * velocity[i] + g[i];
    const T direction =
        u.nesterov ? g[i] + u.momentum * velocity[i] : velocity[i];
    p[i] -= u.learning_rate * direction;
  }
}

// Without momentum, velocity is null.
template <typename T>
void RmsProp(const Update<T>& u, const T* g, T* p, T* mean_square, T* velocity,
             int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    mean_square[i] = u.decay * mean_square[i] + (1 - u.decay) * g[i] * g[i];
    T direction = g[i] / (std::sqrt(mean_square[i]) + u.epsilon);
    if (velocity != nullptr) {
      velocity[i] = direction = u.momentum * velocity[i] + direction;
    }
    p[i] -= u.learning_rate * direction;
  }
}

template <typename T>
void Adagrad(const Update<T>& u, const T* g, T* p, T* accumulator, T*,
             int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    accumulator[i] += g[i] * g[i];
    p[i] -= u.learning_rate * g[i] / (std::sqrt(accumulator[i]) + u.epsilon);
  }
}

template <typename T>
void Adam(const Update<T>& u, const T* g, T* p, T* m, T* v, int64_t n) {
  const T rate = u.learning_rate / u.correction1;
  const T root = std::sqrt(u.correction2);
  const T keep = 1 - u.learning_rate * u.weight_decay;
  for (int64_t i = 0; i < n; ++i) {
    m[i] = u.beta1 * m[i] + (1 - u.beta1) * g[i];
    v[i] = u.beta2 * v[i] + (1 - u.beta2) * g[i] * g[i];
    p[i] = keep * p[i] - rate * m[i] / (std::sqrt(v[i]) / root + u.epsilon);
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

struct Rule {
  const char* op;
  int slots;
  bool counts_steps;  // the step's number follows the learning rate
  Loop<float> f32;
  Loop<double> f64;
  Loop<float> simd;
};

constexpr Rule kRules[] = {
    {"ApplySgd", 0, false, Sgd<float>, Sgd<double>,
     [](const Update<float>& u, const float* g, float* p, float*, float*,
        int64_t n) { Simd().sgd(StepOf(u), g, p, n); }},
    {"ApplyMomentum", 1, false, Momentum<float>, Momentum<double>,
     [](const Update<float>& u, const float* g, float* p, float* velocity,
        float*, int64_t n) { Simd().momentum(StepOf(u), g, velocity, p, n); }},
    {"ApplyRmsProp", 1, false, RmsProp<float>, RmsProp<double>,
     [](const Update<float>& u, const float* g, float* p, float* mean_square,
        float*, int64_t n) {
       Simd().rmsprop(StepOf(u), g, mean_square, nullptr, p, n);
     }},
    {"ApplyRmsPropMomentum", 2, false, RmsProp<float>, RmsProp<double>,
     [](const Update<float>& u, const float* g, float* p, float* mean_square,
        float* velocity, int64_t n) {
       Simd().rmsprop(StepOf(u), g, mean_square, velocity, p, n);
     }},
    {"ApplyAdagrad", 1, false, Adagrad<float>, Adagrad<double>,
     [](const Update<float>& u, const float* g, float* p, float* accumulator,
        float*,
        int64_t n) { Simd().adagrad(StepOf(u), g, accumulator, p, n); }},
    {"ApplyAdam", 2, true, Adam<float>, Adam<double>,
     [](const Update<float>& u, const float* g, float* p, float* m, float* v,
        int64_t n) { Simd().adam(StepOf(u), g, m, v, p, n); }},
    {"ApplyAdamW", 2, true, Adam<float>, Adam<double>,
     [](const Update<float>& u, const float* g, float* p, float* m, float* v,
        int64_t n) { Simd().adam(StepOf(u), g, m, v, p, n); }},
};

// The hyperparameters that are attributes; those the op lacks are 0.
template <typename T>
Update<T> UpdateOf(const Attributes& attrs) {
  const auto number = [&](const char* name) {
    return attrs.Has(name) ? static_cast<T>(attrs.Float(name)) : T(0);
  };
  Update<T> u{};
  u.momentum = number("momentum");
  u.decay = number("decay");
  u.beta1 = number("beta1");
  u.beta2 = number("beta2");
  u.epsilon = number("epsilon");
  u.weight_decay = number("weight_decay");
  u.nesterov = attrs.Has("nesterov") && attrs.Bool("nesterov");
  u.correction1 = u.correction2 = 1;
  return u;
}

// A gradient that is half, scaled or decayed first goes through a buffer that
// stays in the nearest cache.
constexpr int64_t kGradientTile = 1024;

// What becomes of one variable's gradient before the step.
template <typename T>
struct Gradient {
  DType dtype;
  T scale, decay;

  bool Changes() const {
    return dtype != DTypeOf<T>::value || scale != 1 || decay != 0;
  }
  // n elements of it, times the scale, with decay times the parameters added.
  void Load(const char* data, const T* p, int64_t n, T* sum) const {
    DispatchFloating(dtype, [&]<typename G>(TypeTag<G>) {
      const G* g = reinterpret_cast<const G*>(data);
      // Stored, so that it is rounded as a node of its own would round it.
      for (int64_t i = 0; i < n; ++i) sum[i] = Convert<T>(g[i]) * scale;
    });
    if (decay == 0) return;
    for (int64_t i = 0; i < n; ++i) sum[i] += decay * p[i];
  }
};

template <typename T>
void RunChanged(const Update<T>& u, Loop<T> loop, const Gradient<T>& gradient,
                const char* g, T* p, T* a, T* b, int64_t n) {
  T sum[kGradientTile];
  const auto bytes = static_cast<int64_t>(SizeOf(gradient.dtype));
  for (int64_t at = 0; at < n; at += kGradientTile) {
    const int64_t count = std::min(kGradientTile, n - at);
    gradient.Load(g + at * bytes, p + at, count, sum);
    loop(u, sum, p + at, a ? a + at : a, b ? b + at : b, count);
  }
}

template <typename T>
KernelPtr ApplyKernel(const KernelSpec& spec, const Rule& rule, Loop<T> loop) {
  const OptimizerOperands at(spec, rule.slots, rule.counts_steps);
  const double beta1 = rule.counts_steps ? spec.attrs.Float("beta1") : 0;
  const double beta2 = rule.counts_steps ? spec.attrs.Float("beta2") : 0;
  const Update<T> fixed = UpdateOf<T>(spec.attrs);
  const bool list = spec.attrs.Has("variables");
  const T decay = list ? static_cast<T>(spec.attrs.Float("gradient_decay")) : 0;
  const int64_t decayed = list ? spec.attrs.Int("decayed") : 0;
  const TensorList variables(std::span(spec.inputs).first(at.variables));
  std::vector<DType> dtypes;  // of gradients
  for (int i = 0; i < at.variables; ++i) {
    dtypes.push_back(spec.inputs[at.gradient + i].dtype);
  }
  return KernelOf([=, counts = rule.counts_steps](const KernelContext& c) {
    if (at.apply >= 0 && !*c.input<bool>(at.apply)) return;
    Update<T> u = fixed;
    u.learning_rate = static_cast<T>(*c.input<float>(at.rate));
    if (counts) {
      const auto step = static_cast<double>(*c.input<int64_t>(at.step));
      u.correction1 = static_cast<T>(1 - std::pow(beta1, step));
      u.correction2 = static_cast<T>(1 - std::pow(beta2, step));
    }
    const T scale = at.gradient_scale >= 0
                        ? static_cast<T>(*c.input<float>(at.gradient_scale))
                        : T(1);
    ParallelFor(variables.elements(), kGrain, [&](int64_t begin, int64_t end) {
      variables.ForEach(begin, end, [&](int i, int64_t first, int64_t n) {
        auto slot = [&](int s) {
          return s < at.slots
                     ? c.mutable_input<T>((1 + s) * at.variables + i) + first
                     : nullptr;
        };
        const Gradient<T> gradient = {dtypes[i], scale,
                                      i < decayed ? decay : T(0)};
        const char* g = c.input<char>(at.gradient + i) +
                        first * static_cast<int64_t>(SizeOf(dtypes[i]));
        T* p = c.mutable_input<T>(i) + first;
        if (gradient.Changes()) {
          RunChanged(u, loop, gradient, g, p, slot(0), slot(1), n);
        } else {
          loop(u, reinterpret_cast<const T*>(g), p, slot(0), slot(1), n);
        }
      });
    });
  });
}

void Register(KernelTable& table, const std::string& op, const Rule& rule) {
  table.Register({.op = op,
                  .dtypes = kFloatDouble,
                  .make = [&rule](const KernelSpec& spec) -> Result<KernelPtr> {
                    return spec.inputs[0].dtype == DType::kFloat32
                               ? ApplyKernel(spec, rule, rule.f32)
                               : ApplyKernel(spec, rule, rule.f64);
                  }});
  table.Register({.op = op,
                  .priority = 10,
                  .provider = "simd",
                  .dtypes = DType::kFloat32,
                  .make = [&rule](const KernelSpec& spec) -> Result<KernelPtr> {
                    return ApplyKernel(spec, rule, rule.simd);
                  }});
}

}  // namespace

void RegisterOptimizerKernels(KernelTable& table) {
  for (const Rule& rule : kRules) {
    Register(table, rule.op, rule);
    Register(table, rule.op + std::string("List"), rule);
  }
}

}  // namespace sluice::cpu
