// The kernels of the elementwise files, templates over function and dtype. A
// thread takes 16 bytes of the (first) operand at a time; the function is
// compiled once per kernel, whatever the alignment and broadcasting.
#ifndef SLUICE_KERNELS_CUDA_ELEMENTWISE_KERNELS_H_
#define SLUICE_KERNELS_CUDA_ELEMENTWISE_KERNELS_H_

#include <string_view>
#include <type_traits>

#include "engine/scalar.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/launch.h"

namespace sluice::cuda {

// T, or bool for a predicate.
template <typename T, typename Result>
using OutputOf = std::conditional_t<std::is_same_v<Result, bool>, bool, T>;

// --- One operand -------------------------------------------------------------

template <typename Op, typename T, typename Y>
__global__ void UnaryKernel(Op op, const T* x, Y* y, int64_t n, bool whole) {
  constexpr int kN = kPack<T>;
  for (int64_t i = GlobalThread() * kN; i < n; i += GlobalThreads() * kN) {
    const Pack<T, kN> in = LoadPack<T>(x + i, n - i, whole);
    Pack<Y, kN> out;
    for (int k = 0; k < kN; ++k) {
      out.at[k] = Y(op(static_cast<ComputeOf<T>>(in.at[k])));
    }
    StorePack(out, y + i, n - i, whole);
  }
}

template <typename Op, typename T>
Status LaunchUnary(const void* x, void* y, int64_t n, OpParams params,
                   cudaStream_t stream) {
  using C = ComputeOf<T>;
  using Y = OutputOf<T, decltype(Op()(C()))>;
  constexpr int kN = kPack<T>;
  const bool whole = IsAligned<T>(x) && IsAligned<Y, kN>(y);
  return Launch(Op::kName, GridFor((n + kN - 1) / kN), stream,
                UnaryKernel<Op, T, Y>, scalar::MakeOp<Op>(params.a, params.b),
                static_cast<const T*>(x), static_cast<Y*>(y), n, whole);
}

// --- Two operands ------------------------------------------------------------

// Where the operands' elements for an output's element are.
template <int kOperands>
struct Offsets {
  int64_t at[kOperands] = {};
};
template <int kOperands>
__device__ Offsets<kOperands> OffsetsOf(const Broadcast& shape, int64_t i) {
  Offsets<kOperands> offsets;
  for (int d = shape.rank - 1; d >= 0; --d) {
    const int64_t rest = Quotient(i, shape.dims[d]);
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

// Of one operand, the N elements for those of the output from i on. `step` is
// 0 where it is repeated along rows.
template <typename T, int N>
__device__ Pack<T, N> LoadRow(const T* row, int64_t step, int64_t count,
                              bool whole) {
  if (step != 0) return LoadPack<T, N>(row, count, whole);
  Pack<T, N> pack;
  for (int k = 0; k < N; ++k) pack.at[k] = *row;
  return pack;
}

// rows: packs lie within rows; whole: and may be accessed at once.
template <typename Op, typename T, typename Y>
__global__ void BinaryKernel(Op op, const T* a, const T* b, Y* y,
                             Broadcast shape, bool rows, bool whole) {
  constexpr int kN = kPack<T>;
  const int last = shape.rank - 1;
  for (int64_t i = GlobalThread() * kN; i < shape.elements;
       i += GlobalThreads() * kN) {
    const int64_t count = shape.elements - i;
    Pack<T, kN> left = {}, right = {};
    if (rows) {
      const Offsets<2> from = OffsetsOf<2>(shape, i);
      left =
          LoadRow<T, kN>(a + from.at[0], shape.strides[0][last], count, whole);
      right =
          LoadRow<T, kN>(b + from.at[1], shape.strides[1][last], count, whole);
    } else {
      for (int k = 0; k < kN && k < count; ++k) {
        const Offsets<2> from = OffsetsOf<2>(shape, i + k);
        left.at[k] = a[from.at[0]];
        right.at[k] = b[from.at[1]];
      }
    }
    Pack<Y, kN> out;
    for (int k = 0; k < kN; ++k) {
      using C = ComputeOf<T>;
      out.at[k] =
          Y(op(static_cast<C>(left.at[k]), static_cast<C>(right.at[k])));
    }
    StorePack(out, y + i, count, whole);
  }
}

template <typename Op, typename T>
Status LaunchBinary(const void* a, const void* b, void* y,
                    const Broadcast& shape, OpParams params,
                    cudaStream_t stream) {
  using C = ComputeOf<T>;
  using Y = OutputOf<T, decltype(Op()(C(), C()))>;
  constexpr int kN = kPack<T>;
  const bool rows = RowsOfPacks(shape, 2, kN);
  const bool whole =
      rows && IsAligned<T>(a) && IsAligned<T>(b) && IsAligned<Y, kN>(y);
  return Launch(Op::kName, GridFor((shape.elements + kN - 1) / kN), stream,
                BinaryKernel<Op, T, Y>, scalar::MakeOp<Op>(params.a, params.b),
                static_cast<const T*>(a), static_cast<const T*>(b),
                static_cast<Y*>(y), shape, rows, whole);
}

// --- Finding -----------------------------------------------------------------

// Of one operand, and of two.
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

// Among functions and the dtypes each is compiled for. Null if absent.
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
using BoolType = scalar::OpList<bool>;

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_ELEMENTWISE_KERNELS_H_
