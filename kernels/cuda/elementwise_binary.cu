// Elementwise ops of two operands. BiasAdd is Add, the bias broadcast.
#include "kernels/cuda/elementwise_kernels.h"

namespace sluice::cuda {
namespace {

namespace s = scalar;
using Functions =
    s::OpList<s::Add, s::Sub, s::Mul, s::Div, s::FloorDiv, s::Mod, s::Pow,
              s::Maximum, s::Minimum, s::SquaredDifference, s::Atan2, s::Less,
              s::LessEqual, s::Greater, s::GreaterEqual, s::Equal, s::NotEqual>;
using Logical = s::OpList<s::LogicalAnd, s::LogicalOr, s::LogicalXor, s::Equal,
                          s::NotEqual>;

}  // namespace

BinaryLauncher FindBinary(std::string_view function, DType dtype) {
  return dtype == DType::kBool
             ? LauncherAmong<Binary, BoolType>(function, dtype, Logical())
             : LauncherAmong<Binary, FloatingTypes>(function, dtype,
                                                    Functions());
}

}  // namespace sluice::cuda
