// Elementwise ops of one operand.
#include "kernels/cpu/elementwise.h"

#include "engine/convert.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

template <typename TypeList, typename... Ops>
void RegisterAll(KernelTable& table) {
  (RegisterUnary<Ops, TypeList>(table), ...);
}

// The bounds are doubles, so that those of an integer type are brought into
// its range first.
template <typename T>
void ClipLoop(const void* x, void* y, int64_t n, simd::OpParams params) {
  params.a = NearestIn<T>(params.a);
  params.b = NearestIn<T>(params.b);
  UnaryLoop<scalar::Clip, T>(x, y, n, params);
}

template <typename... Ts>
void RegisterClip(KernelTable& table, Types<Ts...>) {
  (table.Register({.op = "Clip",
                   .dtypes = DTypeOf<Ts>::value,
                   .make = [](const KernelSpec& s) -> Result<KernelPtr> {
                     return MakeUnary(s, ClipLoop<Ts>);
                   }}),
   ...);
  RegisterSimdUnary(table, "Clip", "Clip");
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
  RegisterClip(table, NumericTypes());
  RegisterElementwiseBinaryKernels(table);
  RegisterElementwiseMoveKernels(table);
}

}  // namespace sluice::cpu
