// Optimizer steps, of one variable or a list of them. The rules of
// engine/semantics/optimizer.h are the reference, for float32 and float64;
// above them float32 has the loops of the vector table.
#include <algorithm>
#include <string>
#include <vector>

#include "engine/convert.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/optimizer_rules.h"
#include "kernels/cpu/tensor_list.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per piece of work

using optimizer::Update;
using Rule = OptimizerRule;
template <typename T>
using Loop = OptimizerLoop<T>;

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
  const OptimizerParams params = OptimizerParamsOf(spec.attrs);
  const TensorList variables(std::span(spec.inputs).first(at.variables));
  std::vector<DType> dtypes;  // of gradients
  for (int i = 0; i < at.variables; ++i) {
    dtypes.push_back(spec.inputs[at.gradient + i].dtype);
  }
  return KernelOf([=](const KernelContext& c) {
    if (at.apply >= 0 && !*c.input<bool>(at.apply)) return;
    const Update<T> u = UpdateOfStep<T>(at, params, c);
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
        const Gradient<T> gradient = {
            dtypes[i], scale,
            i < params.decayed ? static_cast<T>(params.gradient_decay) : T(0)};
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
  for (const Rule& rule : OptimizerRules()) {
    Register(table, rule.op, rule);
    Register(table, rule.op + std::string("List"), rule);
  }
}

}  // namespace sluice::cpu
