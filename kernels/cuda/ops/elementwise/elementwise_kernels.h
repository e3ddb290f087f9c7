// The kernels of the elementwise files, templates over function and dtype. A
// thread takes up to 16 bytes of the (first) operand at a time, or one element
// where operands broadcast so that packs would cross rows: finding where each
// element is takes more code than most functions.
#ifndef SLUICE_KERNELS_CUDA_OPS_ELEMENTWISE_ELEMENTWISE_KERNELS_H_
#define SLUICE_KERNELS_CUDA_OPS_ELEMENTWISE_ELEMENTWISE_KERNELS_H_

#include <string_view>
#include <type_traits>

#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/ahead.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/ops/elementwise/elementwise.h"

namespace sluice::cuda {

// T, or bool for a predicate.
template <typename T, typename Result>
using OutputOf = std::conditional_t<std::is_same_v<Result, bool>, bool, T>;

// How many T a thread takes at once: 16 bytes, but few of the small integers,
// which are seldom what takes time, so that their kernels stay small.
template <typename T>
inline constexpr int kTaken =
    std::is_integral_v<T>&& kPack<T> > 4 ? 4 : kPack<T>;

// How many packs of each operand are loaded ahead.
inline constexpr int kPacksAtOnce = 2;

// --- One operand -------------------------------------------------------------

template <typename Op, typename T, typename Y>
__global__ void UnaryKernel(Op op, const T* x, Y* y, int64_t n, bool whole) {
  constexpr int kN = kTaken<T>;
  ForPacks<kN, kPacksAtOnce>(
      0, n, GlobalThread(), GlobalThreads(), whole,
      [&](int64_t i, int64_t count, bool at_once) {
        return LoadPack<T, kN>(x + i, count, at_once);
      },
      [&](const Pack<T, kN>& in, int64_t i, int64_t count, bool at_once) {
        Pack<Y, kN> out;
        for (int k = 0; k < kN; ++k) {
          out.at[k] = Y(op(static_cast<ComputeOf<T>>(in.at[k])));
        }
        StorePack(out, y + i, count, at_once);
      });
}

template <typename T, typename Op>
Status LaunchUnaryOp(const Op& op, const void* x, void* y, int64_t n,
                     cudaStream_t stream) {
  using Y = OutputOf<T, decltype(op(ComputeOf<T>()))>;
  constexpr int kN = kTaken<T>;
  const bool whole = IsAligned<T, kN>(x) && IsAligned<Y, kN>(y);
  return Launch(Op::kName, GridFor(CeilDiv(n, kN)), stream,
                UnaryKernel<Op, T, Y>, op, static_cast<const T*>(x),
                static_cast<Y*>(y), n, whole);
}

template <typename Op, typename T>
Status LaunchUnary(const void* x, void* y, int64_t n, OpParams params,
                   cudaStream_t stream) {
  return LaunchUnaryOp<T>(scalar::MakeOp<Op>(params.a, params.b), x, y, n,
                          stream);
}

// --- Broadcasting ------------------------------------------------------------

// The offsets of the operands' elements for one element of the output.
template <int kOperands>
struct Offsets {
  int64_t at[kOperands] = {};
};
template <int kOperands>
__device__ Offsets<kOperands> OffsetsOf(const Broadcast& shape, int64_t i) {
  Offsets<kOperands> offsets;
  SLUICE_ROLLED
  for (int d = shape.rank - 1; d >= 0; --d) {
    const int64_t rest = d == 0 ? 0 : Quotient(i, shape.dims[d]);
    const int64_t index = i - rest * shape.dims[d];
    for (int k = 0; k < kOperands; ++k) {
      offsets.at[k] += index * shape.strides[k][d];
    }
    i = rest;
  }
  return offsets;
}

// May packs of n elements be taken of rows, the innermost dimension? Then they
// do not cross from one row to the next, and begin at multiples of n.
inline bool RowsOfPacks(const Broadcast& shape, int operands, int n) {
  const int last = shape.rank - 1;
  if (shape.rank == 1) return true;
  if (shape.dims[last] % n != 0) return false;
  for (int k = 0; k < operands; ++k) {
    for (int d = 0; d < last; ++d) {
      if (shape.strides[k][d] % n != 0) return false;
    }
  }
  return true;
}

// Loads the N elements of one operand for N neighbours in a row of the output.
// `step` is 0 where the operand is repeated along rows.
template <typename T, int N>
__device__ Pack<T, N> LoadRow(const T* row, int64_t step, int64_t count,
                              bool whole) {
  if (step != 0) return LoadPack<T, N>(row, count, whole);
  const T value = Load(row);
  Pack<T, N> pack = {};
  for (int k = 0; k < N; ++k) pack.at[k] = value;
  return pack;
}

// --- Two operands ------------------------------------------------------------

// Packs of N of both operands, and what becomes of them.
template <typename T, int N>
struct PackPair {
  Pack<T, N> left, right;
};
template <typename Y, typename Op, typename T, int N>
__device__ Pack<Y, N> CallPacks(const Op& op, const PackPair<T, N>& in) {
  using C = ComputeOf<T>;
  Pack<Y, N> out;
  for (int k = 0; k < N; ++k) {
    out.at[k] =
        Y(op(static_cast<C>(in.left.at[k]), static_cast<C>(in.right.at[k])));
  }
  return out;
}

// Packs of N lie within rows. whole: they may be accessed at once.
template <typename Op, typename T, typename Y, int N>
__global__ void BinaryKernel(Op op, const T* a, const T* b, Y* y,
                             Broadcast shape, bool whole) {
  const int last = shape.rank - 1;
  const int64_t a_step = shape.strides[0][last];
  const int64_t b_step = shape.strides[1][last];
  if (shape.rank == 1 && a_step != 0 && b_step != 0) {  // nothing repeats
    return ForPacks<N, 1>(
        0, shape.elements, GlobalThread(), GlobalThreads(), whole,
        [&](int64_t i, int64_t count, bool at_once) {
          return PackPair<T, N>{LoadPack<T, N>(a + i, count, at_once),
                                LoadPack<T, N>(b + i, count, at_once)};
        },
        [&](const PackPair<T, N>& in, int64_t i, int64_t count, bool at_once) {
          StorePack(CallPacks<Y>(op, in), y + i, count, at_once);
        });
  }
  SLUICE_ROLLED
  for (int64_t i = GlobalThread() * N; i < shape.elements;
       i += GlobalThreads() * N) {
    const int64_t count = shape.elements - i;
    const Offsets<2> from = OffsetsOf<2>(shape, i);
    const PackPair<T, N> in = {
        LoadRow<T, N>(a + from.at[0], a_step, count, whole),
        LoadRow<T, N>(b + from.at[1], b_step, count, whole)};
    StorePack(CallPacks<Y>(op, in), y + i, count, whole);
  }
}

template <typename Op, typename T, typename Y, int N>
Status LaunchPacksOfTwo(const void* a, const void* b, void* y,
                        const Broadcast& shape, OpParams params,
                        cudaStream_t stream) {
  const bool whole =
      IsAligned<T, N>(a) && IsAligned<T, N>(b) && IsAligned<Y, N>(y);
  return Launch(Op::kName, GridFor(CeilDiv(shape.elements, N)), stream,
                BinaryKernel<Op, T, Y, N>,
                scalar::MakeOp<Op>(params.a, params.b),
                static_cast<const T*>(a), static_cast<const T*>(b),
                static_cast<Y*>(y), shape, whole);
}

template <typename Op, typename T>
Status LaunchBinary(const void* a, const void* b, void* y,
                    const Broadcast& shape, OpParams params,
                    cudaStream_t stream) {
  using C = ComputeOf<T>;
  using Y = OutputOf<T, decltype(Op()(C(), C()))>;
  const auto launch = RowsOfPacks(shape, 2, kTaken<T>)
                          ? LaunchPacksOfTwo<Op, T, Y, kTaken<T>>
                          : LaunchPacksOfTwo<Op, T, Y, 1>;
  return launch(a, b, y, shape, params, stream);
}

// --- Finding -----------------------------------------------------------------

// The forms of functions of one operand, and of two.
struct Unary {
  using Launcher = UnaryLauncher;
  template <typename Op, typename T>
  static constexpr Launcher kLaunch = LaunchUnary<Op, T>;
};
struct Binary {
  using Launcher = BinaryLauncher;
  template <typename Op, typename T>
  static constexpr Launcher kLaunch = LaunchBinary<Op, T>;
};

template <typename Form, typename Op, typename... Ts>
typename Form::Launcher LauncherFor(DType dtype, scalar::OpList<Ts...>) {
  typename Form::Launcher found = nullptr;
  ((found = dtype == DTypeOf<Ts>::value
                ? Form::template kLaunch<Op, DeviceTypeOf<Ts>>
                : found),
   ...);
  return found;
}

// The launcher of a function for a dtype, among functions and the dtypes each
// is compiled for. Null if absent.
template <typename Form, typename Types, typename... Ops>
typename Form::Launcher LauncherAmong(std::string_view function, DType dtype,
                                      scalar::OpList<Ops...>) {
  typename Form::Launcher found = nullptr;
  ((found = function == Ops::kName ? LauncherFor<Form, Ops>(dtype, Types())
                                   : found),
   ...);
  return found;
}

using FloatingTypes = scalar::OpList<float, double, Half, BFloat16>;
using NumericTypes = scalar::OpList<float, double, Half, BFloat16, int8_t,
                                    uint8_t, int32_t, int64_t>;
using BoolType = scalar::OpList<bool>;

// Called by FindUnary and FindBinary for functions that they do not find
// themselves.
UnaryLauncher FindActivation(std::string_view function, DType dtype);
BinaryLauncher FindActivationGrad(std::string_view function, DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ELEMENTWISE_ELEMENTWISE_KERNELS_H_
