// Activation functions and their gradients.
#include "kernels/cuda/ops/elementwise/elementwise_kernels.h"

namespace sluice::cuda {
namespace {

namespace s = scalar;
using Functions =
    s::OpList<s::Sigmoid, s::Softplus, s::Softsign, s::Relu, s::Relu6,
              s::LeakyRelu, s::Elu, s::Selu, s::Silu, s::Gelu, s::GeluTanh>;
using Gradients =
    s::OpList<s::TanhGrad, s::SigmoidGrad, s::SoftplusGrad, s::ReluGrad,
              s::Relu6Grad, s::LeakyReluGrad, s::EluGrad, s::SeluGrad,
              s::SiluGrad, s::GeluGrad, s::GeluTanhGrad>;

}  // namespace

UnaryLauncher FindActivation(std::string_view function, DType dtype) {
  return LauncherAmong<Unary, FloatingTypes>(function, dtype, Functions());
}

BinaryLauncher FindActivationGrad(std::string_view function, DType dtype) {
  return LauncherAmong<Binary, FloatingTypes>(function, dtype, Gradients());
}

}  // namespace sluice::cuda
