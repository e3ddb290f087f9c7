// Activation functions and their gradients.
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

template <typename... Ops>
void RegisterFunctions(KernelTable& table) {
  (RegisterUnary<Ops, FloatingTypes>(table), ...);
}
template <typename... Ops>
void RegisterGradients(KernelTable& table) {
  (RegisterBinary<Ops, FloatingTypes>(table), ...);
}

bool Approximate(const KernelSpec& spec) {
  return spec.attrs.Bool("approximate");
}
bool Exact(const KernelSpec& spec) {
  return !Approximate(spec);
}

// Gelu's two forms are two functions under one op.
void RegisterGelu(KernelTable& table) {
  table.Register({.op = "Gelu",
                  .dtypes = kFloating,
                  .make = [](const KernelSpec& s) -> Result<KernelPtr> {
                    const DType dtype = s.inputs[0].dtype;
                    return MakeUnary(
                        s,
                        Approximate(s)
                            ? FindLoop<scalar::GeluTanh>(dtype, FloatingTypes())
                            : FindLoop<scalar::Gelu>(dtype, FloatingTypes()));
                  }});
  RegisterSimdUnary(table, "Gelu", "Gelu", Exact);
  RegisterSimdUnary(table, "Gelu", "GeluTanh", Approximate);
  table.Register(
      {.op = "GeluGrad",
       .dtypes = kFloating,
       .make = [](const KernelSpec& s) -> Result<KernelPtr> {
         const DType dtype = s.inputs[0].dtype;
         return MakeBinary(
             s,
             Approximate(s)
                 ? FindStridedLoop<scalar::GeluTanhGrad>(dtype, FloatingTypes())
                 : FindStridedLoop<scalar::GeluGrad>(dtype, FloatingTypes()));
       }});
  RegisterSimdBinary(table, "GeluGrad", "GeluGrad", Exact);
  RegisterSimdBinary(table, "GeluGrad", "GeluTanhGrad", Approximate);
}

}  // namespace

void RegisterActivationKernels(KernelTable& table) {
  namespace s = scalar;
  RegisterFunctions<s::Sigmoid, s::Softplus, s::Softsign, s::Relu, s::Relu6,
                    s::LeakyRelu, s::Elu, s::Selu, s::Silu>(table);
  RegisterGradients<s::TanhGrad, s::SigmoidGrad, s::SoftplusGrad, s::ReluGrad,
                    s::Relu6Grad, s::LeakyReluGrad, s::EluGrad, s::SeluGrad,
                    s::SiluGrad>(table);
  RegisterGelu(table);
}

}  // namespace sluice::cpu
