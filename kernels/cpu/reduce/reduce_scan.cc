// Ops along one axis that keep it, or say where on it: CumSum, ProdGrad, ArgMax
// and ArgMin.
#include <type_traits>

#include "engine/semantics/compensated_sum.h"
#include "kernels/cpu/reduce/reduce.h"

namespace sluice::cpu {
namespace {

template <typename T>
KernelPtr MakeCumSumOf(const KernelSpec& spec) {
  using Running =
      std::conditional_t<std::is_integral_v<T>, Wide<T>, SumOfMany<T>>;
  const AxisForm form = AxisFormOf(spec, 0);
  const bool exclusive = spec.attrs.Bool("exclusive");
  const bool reverse = spec.attrs.Bool("reverse");
  return KernelOf([=](const KernelContext& c) {
    ForEachColumnBlock(form, [&](int64_t outer, int64_t column,
                                 int64_t columns) {
      Running sums[kColumnBlock] = {};
      for (int64_t i = 0; i < form.n; ++i) {
        const int64_t row = reverse ? form.n - 1 - i : i;
        const int64_t at = (outer * form.n + row) * form.inner + column;
        const T* x = c.input<T>(0) + at;
        T* y = c.output<T>(0) + at;
        for (int64_t j = 0; j < columns; ++j) {
          const Running before = sums[j];
          sums[j] +=
              Running(static_cast<Wide<T>>(static_cast<ComputeType<T>>(x[j])));
          const auto sum = static_cast<Wide<T>>(exclusive ? before : sums[j]);
          y[j] = T(static_cast<ComputeType<T>>(sum));
        }
      }
    });
  });
}

// Products of the elements before, then times those after. The former wait in
// the workspace as they are: in T one that is large or small would be lost.
template <typename T>
KernelPtr MakeProdGradOf(const KernelSpec& spec) {
  using C = ComputeType<T>;
  const AxisForm form = AxisFormOf(spec, 1);
  const auto run = [=](const KernelContext& c) {
    ForEachColumnBlock(
        form, [&](int64_t outer, int64_t column, int64_t columns) {
          const int64_t first = outer * form.n * form.inner + column;
          const T* x = c.input<T>(1) + first;
          T* y = c.output<T>(0) + first;
          double* before = static_cast<double*>(c.workspace()) + first;
          const T* dy = c.input<T>(0) + outer * form.inner + column;
          double products[kColumnBlock];
          std::fill_n(products, columns, 1.0);
          for (int64_t i = 0; i < form.n; ++i) {
            const int64_t row = i * form.inner;
            for (int64_t j = 0; j < columns; ++j) {
              before[row + j] = products[j];
              products[j] *= static_cast<double>(C(x[row + j]));
            }
          }
          for (int64_t j = 0; j < columns; ++j) {
            products[j] = static_cast<double>(C(dy[j]));
          }
          for (int64_t i = form.n; i-- > 0;) {
            const int64_t row = i * form.inner;
            for (int64_t j = 0; j < columns; ++j) {
              y[row + j] = T(static_cast<C>(before[row + j] * products[j]));
              products[j] *= static_cast<double>(C(x[row + j]));
            }
          }
        });
  };
  return KernelOf(run, spec.inputs[1].shape.elements() * sizeof(double));
}

// sign 1: the largest; -1: the smallest.
template <typename T, int sign>
KernelPtr MakeArgOf(const KernelSpec& spec) {
  using C = ComputeType<T>;
  const AxisForm form = AxisFormOf(spec, 0);
  return KernelOf([=](const KernelContext& c) {
    ForEachColumnBlock(
        form, [&](int64_t outer, int64_t column, int64_t columns) {
          const T* x = c.input<T>(0) + outer * form.n * form.inner + column;
          int64_t* y = c.output<int64_t>(0) + outer * form.inner + column;
          C best[kColumnBlock];
          for (int64_t j = 0; j < columns; ++j) best[j] = static_cast<C>(x[j]);
          std::fill_n(y, columns, 0);
          for (int64_t i = 1; i < form.n; ++i) {
            for (int64_t j = 0; j < columns; ++j) {
              const C v = static_cast<C>(x[i * form.inner + j]);
              const bool better = sign > 0 ? v > best[j] : v < best[j];
              const bool first_nan = v != v && best[j] == best[j];
              if (better || first_nan) {
                best[j] = v;
                y[j] = i;
              }
            }
          }
        });
  });
}

template <typename... Ts>
void RegisterNumeric(KernelTable& table) {
  auto add = [&](const char* op, DType dtype,
                 KernelPtr (*make)(const KernelSpec&)) {
    table.Register({.op = op,
                    .dtypes = dtype,
                    .make = [make](const KernelSpec& s) -> Result<KernelPtr> {
                      return make(s);
                    }});
  };
  (add("CumSum", DTypeOf<Ts>::value, MakeCumSumOf<Ts>), ...);
  (add("ArgMax", DTypeOf<Ts>::value, MakeArgOf<Ts, 1>), ...);
  (add("ArgMin", DTypeOf<Ts>::value, MakeArgOf<Ts, -1>), ...);
}

}  // namespace

void RegisterReduceScanKernels(KernelTable& table) {
  RegisterNumeric<float, double, Half, BFloat16, int8_t, uint8_t, int32_t,
                  int64_t>(table);
  table.Register({.op = "ProdGrad",
                  .dtypes = kFloating,
                  .make = [](const KernelSpec& s) -> Result<KernelPtr> {
                    return DispatchFloating(s.inputs[0].dtype,
                                            [&]<typename T>(TypeTag<T>) {
                                              return MakeProdGradOf<T>(s);
                                            });
                  }});
}

}  // namespace sluice::cpu
