// Reductions of floating dtypes, and how a reduction is cut into passes.
#include "kernels/cuda/ops/reduce/reduce.h"

#include "kernels/cuda/device/log_sum_exp.h"
#include "kernels/cuda/ops/reduce/reduce_kernels.h"

namespace sluice::cuda {

// Of a struct: by members. Found by the reductions over a warp.
template <typename C>
__device__ ExpSum<C> ShuffleXor(const ExpSum<C>& value, int lanes) {
  return {ShuffleXor(value.max, lanes), ShuffleXor(value.sum, lanes)};
}

namespace {

// --- Reducers ----------------------------------------------------------------

template <typename T>
struct SumOf {
  static constexpr const char* kName = "Sum";
  using State = ComputeOf<T>;
  static __device__ State Start() { return State(0); }
  static __device__ State From(State x) { return x; }
  __device__ State operator()(State a, State b) const { return a + b; }
  static __device__ T Finish(State s, int64_t) { return T(s); }
};
template <typename T>
struct MeanOf : SumOf<T> {
  static constexpr const char* kName = "Mean";
  static __device__ T Finish(ComputeOf<T> s, int64_t count) {
    return T(s / static_cast<ComputeOf<T>>(count));
  }
};
// In double, which holds the squares of all floats.
template <typename T>
struct SquaresOf {
  static constexpr const char* kName = "SquaredNorm";
  using State = double;
  static __device__ State Start() { return 0; }
  static __device__ State From(ComputeOf<T> x) {
    return static_cast<double>(x) * static_cast<double>(x);
  }
  __device__ State operator()(State a, State b) const { return a + b; }
  static __device__ double Finish(State s, int64_t) { return s; }
};
template <typename T>
struct HalfSquaresOf : SquaresOf<T> {
  static constexpr const char* kName = "L2Loss";
  static __device__ T Finish(double s, int64_t) {
    return T(static_cast<ComputeOf<T>>(s / 2));
  }
};
// In double, since a product of some factors may be out of float's range where
// that of all is within.
template <typename T>
struct ProductOf {
  static constexpr const char* kName = "Prod";
  using State = double;
  static __device__ State Start() { return 1; }
  static __device__ State From(ComputeOf<T> x) {
    return static_cast<double>(x);
  }
  __device__ State operator()(State a, State b) const { return a * b; }
  static __device__ T Finish(State s, int64_t) {
    return T(static_cast<ComputeOf<T>>(s));
  }
};
template <typename T>
struct MaxOf : SumOf<T> {
  static constexpr const char* kName = "Max";
  using State = ComputeOf<T>;
  static __device__ State Start() { return State(-__builtin_inff()); }
  __device__ State operator()(State a, State b) const {
    return scalar::Maximum()(a, b);
  }
};
template <typename T>
struct MinOf : SumOf<T> {
  static constexpr const char* kName = "Min";
  using State = ComputeOf<T>;
  static __device__ State Start() { return State(__builtin_inff()); }
  __device__ State operator()(State a, State b) const {
    return scalar::Minimum()(a, b);
  }
};
template <typename T>
struct LogSumExpOf {
  static constexpr const char* kName = "LogSumExp";
  using C = ComputeOf<T>;
  using State = ExpSum<C>;
  static __device__ State Start() { return {C(-__builtin_inff()), C(0)}; }
  static __device__ State From(C x) { return {x, C(1)}; }
  // Equal maxima apart, or infinities would make NaN.
  __device__ State operator()(const State& a, const State& b) const {
    if (a.max == b.max) return {a.max, a.sum + b.sum};
    const State& more = b.max > a.max ? b : a;
    const State& less = b.max > a.max ? a : b;
    return {more.max, more.sum + less.sum * scalar::Exp()(less.max - more.max)};
  }
  static __device__ T Finish(const State& s, int64_t) {
    return T(s.max + scalar::Log()(s.sum));
  }
};

template <typename T>
Reduction LauncherOf(std::string_view op) {
  if (op == "Sum") return ReductionOf<SumOf<T>, T>();
  if (op == "Mean") return ReductionOf<MeanOf<T>, T>();
  if (op == "Prod") return ReductionOf<ProductOf<T>, T>();
  if (op == "Max") return ReductionOf<MaxOf<T>, T>();
  if (op == "Min") return ReductionOf<MinOf<T>, T>();
  if (op == "LogSumExp") return ReductionOf<LogSumExpOf<T>, T>();
  if (op == "L2Loss") return ReductionOf<HalfSquaresOf<T>, T>();
  if (op == "SquaredNorm") return ReductionOf<SquaresOf<T>, T>();
  return {};
}

}  // namespace

Reduction FindReduce(std::string_view op, DType dtype) {
  if (!IsFloating(dtype)) return FindIntegerReduce(op, dtype);
  return DispatchFloating(dtype, [&]<typename T>(TypeTag<T>) {
    return LauncherOf<DeviceTypeOf<T>>(op);
  });
}

}  // namespace sluice::cuda
