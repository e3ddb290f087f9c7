// Elementwise ops of two operands. BiasAdd is Add, the bias broadcast.
#include "kernels/cuda/ops/elementwise/elementwise_kernels.h"

namespace sluice::cuda {
namespace {

namespace s = scalar;
using Arithmetic =
    s::OpList<s::Add, s::Sub, s::Mul, s::Div, s::FloorDiv, s::Mod, s::Pow,
              s::Maximum, s::Minimum, s::SquaredDifference, s::Less,
              s::LessEqual, s::Greater, s::GreaterEqual, s::Equal, s::NotEqual>;
using Logical = s::OpList<s::LogicalAnd, s::LogicalOr, s::LogicalXor, s::Equal,
                          s::NotEqual>;

}  // namespace

BinaryLauncher FindBinary(std::string_view function, DType dtype) {
  if (dtype == DType::kBool) {
    return LauncherAmong<Binary, BoolType>(function, dtype, Logical());
  }
  for (const BinaryLauncher found :
       {LauncherAmong<Binary, NumericTypes>(function, dtype, Arithmetic()),
        LauncherAmong<Binary, FloatingTypes>(function, dtype,
                                             s::OpList<s::Atan2>())}) {
    if (found != nullptr) return found;
  }
  return FindActivationGrad(function, dtype);
}

}  // namespace sluice::cuda
