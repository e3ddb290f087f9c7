// Elementwise ops of one operand, and how operands broadcast.
#include "kernels/cuda/ops/elementwise/elementwise.h"

#include "kernels/cuda/ops/elementwise/elementwise_kernels.h"

namespace sluice::cuda {
namespace {

namespace s = scalar;
using Arithmetic = s::OpList<s::Neg, s::Abs, s::Sign, s::Square>;
using Functions =
    s::OpList<s::Exp, s::Expm1, s::Log, s::Log1p, s::Sqrt, s::Rsqrt,
              s::Reciprocal, s::Sin, s::Cos, s::Tan, s::Asin, s::Acos, s::Atan,
              s::Sinh, s::Cosh, s::Tanh, s::Erf, s::Floor, s::Ceil, s::Round,
              s::IsNan, s::IsInf, s::IsFinite, s::Clip>;

// Clip of integers, whose bounds a double may not hold.
template <typename T>
struct IntegerClip {
  static constexpr const char* kName = "Clip";
  T low, high;
  __device__ T operator()(T x) const { return s::ClampTo(x, low, high); }
};

template <typename T>
Status LaunchIntegerClip(const void* x, void* y, int64_t n, OpParams params,
                         cudaStream_t stream) {
  return LaunchUnaryOp<T>(
      IntegerClip<T>{static_cast<T>(params.low), static_cast<T>(params.high)},
      x, y, n, stream);
}

}  // namespace

UnaryLauncher FindUnary(std::string_view function, DType dtype) {
  if (dtype == DType::kBool) {
    return LauncherAmong<Unary, BoolType>(function, dtype,
                                          s::OpList<s::LogicalNot>());
  }
  if (function == "Clip" && IsInteger(dtype)) {
    return DispatchAmong<int8_t, uint8_t, int32_t, int64_t>(
        dtype, []<typename T>(TypeTag<T>) -> UnaryLauncher {
          return LaunchIntegerClip<T>;
        });
  }
  for (const UnaryLauncher found :
       {LauncherAmong<Unary, NumericTypes>(function, dtype, Arithmetic()),
        LauncherAmong<Unary, FloatingTypes>(function, dtype, Functions())}) {
    if (found != nullptr) return found;
  }
  return FindActivation(function, dtype);
}

Broadcast BroadcastOf(const Shape& output, std::span<const Shape> operands) {
  Broadcast b;
  b.elements = output.elements();
  const int count = static_cast<int>(operands.size());
  std::array<int64_t, Shape::kMaxRank> strides[Broadcast::kMaxOperands];
  for (int k = 0; k < count; ++k) strides[k] = Strides(operands[k]);
  for (int d = 0; d < output.rank(); ++d) {
    if (output[d] == 1) continue;
    int64_t step[Broadcast::kMaxOperands] = {};
    bool merges = b.rank > 0;
    for (int k = 0; k < count; ++k) {
      const int own = d - (output.rank() - operands[k].rank());
      const bool repeated = own < 0 || operands[k][own] == 1;
      step[k] = repeated ? 0 : strides[k][own];
      merges = merges && b.strides[k][b.rank - 1] == step[k] * output[d];
    }
    if (!merges) b.dims[b.rank++] = 1;
    b.dims[b.rank - 1] *= output[d];
    for (int k = 0; k < count; ++k) b.strides[k][b.rank - 1] = step[k];
  }
  if (b.rank == 0) b.dims[b.rank++] = 1;  // one element
  return b;
}

}  // namespace sluice::cuda
