// Elementwise ops of one operand.
#include "kernels/cpu/elementwise/elementwise.h"

#include <algorithm>

#include "engine/convert.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

template <typename TypeList, typename... Ops>
void RegisterAll(KernelTable& table) {
  (RegisterUnary<Ops, TypeList>(table), ...);
}

// Of integers, whose bounds a double may not hold.
Result<KernelPtr> MakeIntegerClip(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.elements();
  return DispatchAmong<int8_t, uint8_t, int32_t, int64_t>(
      spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
        const T low = NearestIn<T>(spec.attrs.NumberOf("lo"));
        const T high = NearestIn<T>(spec.attrs.NumberOf("hi"));
        return KernelOf([=](const KernelContext& c) {
          const T* x = c.input<T>(0);
          T* y = c.output<T>(0);
          ParallelFor(n, kElementwiseGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              y[i] = std::clamp(x[i], low, high);
            }
          });
        });
      });
}

}  // namespace

void RegisterElementwiseKernels(KernelTable& table) {
  namespace s = scalar;
  RegisterAll<NumericTypes, s::Neg, s::Abs, s::Sign, s::Square>(table);
  RegisterAll<FloatingTypes, s::Exp, s::Expm1, s::Log, s::Log1p, s::Sqrt,
              s::Rsqrt, s::Reciprocal, s::Sin, s::Cos, s::Tan, s::Asin, s::Acos,
              s::Atan, s::Sinh, s::Cosh, s::Tanh, s::Erf, s::Floor, s::Ceil,
              s::Round, s::IsNan, s::IsInf, s::IsFinite>(table);
  RegisterAll<Types<bool>, s::LogicalNot>(table);
  RegisterAll<FloatingTypes, s::Clip>(table);
  RegisterSimdUnary(table, "Clip", "Clip");
  table.Register({.op = "Clip", .dtypes = kIntegral, .make = MakeIntegerClip});
  RegisterElementwiseBinaryKernels(table);
  RegisterElementwiseMoveKernels(table);
}

}  // namespace sluice::cpu
