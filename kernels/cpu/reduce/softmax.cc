// Softmax and its logarithm along any axis.
#include <algorithm>

#include "engine/semantics/axis_form.h"
#include "engine/semantics/scalar.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/sum_in_runs.h"

namespace sluice::cpu {
namespace {

int64_t Grain(int64_t row) {
  return std::max<int64_t>((1 << 13) / std::max<int64_t>(row, 1), 1);
}

// One line of `size` elements, `stride` apart. log: of the softmax.
template <typename T>
void Line(const T* x, int64_t size, int64_t stride, bool log, T* y) {
  using C = ComputeType<T>;
  if (size == 0) return;
  C max = static_cast<C>(x[0]);
  for (int64_t i = 1; i < size; ++i) {
    max = std::max(max, static_cast<C>(x[i * stride]));
  }
  const C sum = SumInRuns<C>(size, [&](int64_t i) {
    return scalar::Exp()(static_cast<C>(x[i * stride]) - max);
  });
  const C log_sum = scalar::Log()(sum);
  for (int64_t i = 0; i < size; ++i) {
    const C value = static_cast<C>(x[i * stride]) - max;
    y[i * stride] = T(log ? value - log_sum : scalar::Exp()(value) / sum);
  }
}

template <bool log>
Result<KernelPtr> MakeReference(const KernelSpec& spec) {
  const AxisForm a = AxisFormOf(spec, 0);
  return DispatchFloating(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
    return Result<KernelPtr>(KernelOf([a](const KernelContext& c) {
      const T* x = c.input<T>(0);
      T* y = c.output<T>(0);
      const int64_t lines = a.n == 0 ? 0 : a.outer * a.inner;
      ParallelFor(lines, Grain(a.n), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t at = i / a.inner * a.n * a.inner + i % a.inner;
          Line(x + at, a.n, a.inner, log, y + at);
        }
      });
    }));
  });
}

template <bool log>
Result<KernelPtr> MakeFast(const KernelSpec& spec) {
  const AxisForm a = AxisFormOf(spec, 0);
  const auto rows = log ? Simd().log_softmax : Simd().softmax;
  return KernelOf([a, rows](const KernelContext& c) {
    ParallelFor(a.outer, Grain(a.n), [&](int64_t begin, int64_t end) {
      rows(c.input<float>(0) + begin * a.n, c.output<float>(0) + begin * a.n,
           end - begin, a.n);
    });
  });
}

}  // namespace

void RegisterSoftmaxKernels(KernelTable& table) {
  const auto add = [&](const char* op, auto reference, auto fast) {
    table.Register({.op = op, .dtypes = kFloating, .make = reference});
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .supports =
                        [](const KernelSpec& spec) {
                          const AxisForm a = AxisFormOf(spec, 0);
                          return a.inner == 1 && a.n > 0;
                        },
                    .dtypes = DType::kFloat32,
                    .make = fast});
  };
  add("Softmax", MakeReference<false>, MakeFast<false>);
  add("LogSoftmax", MakeReference<true>, MakeFast<true>);
}

}  // namespace sluice::cpu
