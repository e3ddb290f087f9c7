// Shared by the files of the elementwise and activation kernels: broadcasting,
// and the kernels around a loop over one run of elements.
//
// A broadcast is cut into runs in which each operand is an array or a single
// element; the functions of engine/semantics/scalar.h are compiled only into
// loops over runs, once per op and dtype, so that compilation stays quick.
#ifndef SLUICE_KERNELS_CPU_ELEMENTWISE_ELEMENTWISE_H_
#define SLUICE_KERNELS_CPU_ELEMENTWISE_ELEMENTWISE_H_

#include <algorithm>
#include <array>
#include <span>

#include "engine/kernel.h"
#include "engine/semantics/scalar.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

inline constexpr int64_t kElementwiseGrain = 1 << 14;  // elements per chunk

// How up to three operands broadcast to an output, with neighbouring
// dimensions merged where possible. Immutable.
class Broadcast {
 public:
  static constexpr int kMaxOperands = 3;
  using Offsets = std::array<int64_t, kMaxOperands>;  // elements

  Broadcast(const Shape& output, std::span<const TensorType> operands);

  int64_t elements() const { return elements_; }
  // Within a run operand k is an array (1) or one element (0).
  int64_t step(int k) const { return steps_[k]; }

  // Calls fn(offsets of the operands, offset of the output, n) for each run of
  // the output's elements [begin, end).
  template <typename Fn>
  void ForEachRun(int64_t begin, int64_t end, Fn fn) const {
    std::array<int64_t, Shape::kMaxRank> index;
    int64_t row = begin / run_;
    Offsets at{};
    for (int d = rank_ - 1; d >= 0; --d) {
      index[d] = row % dims_[d];
      row /= dims_[d];
      for (int k = 0; k < kMaxOperands; ++k) {
        at[k] += index[d] * strides_[k][d];
      }
    }
    for (int64_t skip = begin % run_; begin < end; skip = 0) {
      const int64_t n = std::min(run_ - skip, end - begin);
      Offsets start = at;
      for (int k = 0; k < kMaxOperands; ++k) start[k] += skip * steps_[k];
      fn(start, begin, n);
      begin += n;
      for (int d = rank_ - 1; d >= 0; --d) {
        const bool wraps = ++index[d] == dims_[d];
        for (int k = 0; k < kMaxOperands; ++k) {
          at[k] += strides_[k][d] * (wraps ? 1 - dims_[d] : 1);
        }
        if (!wraps) break;
        index[d] = 0;
      }
    }
  }

 private:
  int rank_ = 0;  // of the dimensions outside a run
  std::array<int64_t, Shape::kMaxRank> dims_{};
  std::array<std::array<int64_t, Shape::kMaxRank>, kMaxOperands> strides_{};
  Offsets steps_{};
  int64_t run_ = 1;
  int64_t elements_ = 1;
};

// Op's parameters from the attributes alpha, or lo and hi.
simd::OpParams ParamsOf(const KernelSpec& spec);

// A loop over one run; an operand advances by step 0 or 1.
using StridedFn = void (*)(const void* a, int64_t a_step, const void* b,
                           int64_t b_step, void* y, int64_t n,
                           simd::OpParams params);

KernelPtr MakeUnary(const KernelSpec& spec, simd::UnaryFn fn);
KernelPtr MakeBinary(const KernelSpec& spec, StridedFn fn);

// Registers the vector loops of `op`, called `loop` in their table, for the
// dtypes that have them and specs that `when` (if any) accepts.
void RegisterSimdUnary(KernelTable& table, const char* op, const char* loop,
                       bool (*when)(const KernelSpec&) = nullptr);
void RegisterSimdBinary(KernelTable& table, const char* op, const char* loop,
                        bool (*when)(const KernelSpec&) = nullptr);

// float16 and bfloat16 go through float; a predicate's result is bool.
template <typename Op, typename T>
void UnaryLoop(const void* x_data, void* y_data, int64_t n,
               simd::OpParams params) {
  const Op op = scalar::MakeOp<Op>(params.a, params.b);
  using C = ComputeType<T>;
  using R = decltype(op(C()));
  using Y = std::conditional_t<std::is_same_v<R, C>, T, R>;
  const T* x = static_cast<const T*>(x_data);
  Y* y = static_cast<Y*>(y_data);
  for (int64_t i = 0; i < n; ++i) y[i] = Y(op(static_cast<C>(x[i])));
}

template <typename Op, typename T>
void BinaryLoop(const void* a_data, int64_t a_step, const void* b_data,
                int64_t b_step, void* y_data, int64_t n,
                simd::OpParams params) {
  const Op op = scalar::MakeOp<Op>(params.a, params.b);
  using C = ComputeType<T>;
  using R = decltype(op(C(), C()));
  using Y = std::conditional_t<std::is_same_v<R, C>, T, R>;
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  Y* y = static_cast<Y*>(y_data);
  for (int64_t i = 0; i < n; ++i, a += a_step, b += b_step) {
    y[i] = Y(op(static_cast<C>(*a), static_cast<C>(*b)));
  }
}

// The dtypes an op's reference kernels are compiled for.
template <typename... Ts>
struct Types {
  static constexpr DTypeSet Set() {
    DTypeSet set;
    ((set = set | DTypeOf<Ts>::value), ...);
    return set;
  }
};
using FloatingTypes = Types<float, double, Half, BFloat16>;
using NumericTypes =
    Types<float, double, Half, BFloat16, int8_t, uint8_t, int32_t, int64_t>;
using AllTypes = Types<float, double, Half, BFloat16, int8_t, uint8_t, int32_t,
                       int64_t, bool>;

template <typename Op, typename... Ts>
simd::UnaryFn FindLoop(DType dtype, Types<Ts...>) {
  simd::UnaryFn fn = nullptr;
  ((fn = dtype == DTypeOf<Ts>::value ? UnaryLoop<Op, Ts> : fn), ...);
  return fn;
}
template <typename Op, typename... Ts>
StridedFn FindStridedLoop(DType dtype, Types<Ts...>) {
  StridedFn fn = nullptr;
  ((fn = dtype == DTypeOf<Ts>::value ? BinaryLoop<Op, Ts> : fn), ...);
  return fn;
}

// Registers Op's reference and vector kernels under its own name.
template <typename Op, typename TypeList>
void RegisterUnary(KernelTable& table) {
  table.Register({.op = Op::kName,
                  .dtypes = TypeList::Set(),
                  .make = [](const KernelSpec& s) -> Result<KernelPtr> {
                    return MakeUnary(
                        s, FindLoop<Op>(s.inputs[0].dtype, TypeList()));
                  }});
  RegisterSimdUnary(table, Op::kName, Op::kName);
}
template <typename Op, typename TypeList>
void RegisterBinary(KernelTable& table) {
  table.Register({.op = Op::kName,
                  .dtypes = TypeList::Set(),
                  .make = [](const KernelSpec& s) -> Result<KernelPtr> {
                    return MakeBinary(
                        s, FindStridedLoop<Op>(s.inputs[0].dtype, TypeList()));
                  }});
  RegisterSimdBinary(table, Op::kName, Op::kName);
}

// The parts of RegisterElementwiseKernels in files of their own.
void RegisterElementwiseBinaryKernels(KernelTable& table);
void RegisterElementwiseMoveKernels(KernelTable& table);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_ELEMENTWISE_ELEMENTWISE_H_
