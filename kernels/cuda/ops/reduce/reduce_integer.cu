// Reductions of integers, and of bool, which is a byte of 0 or 1: whether any
// holds is the largest, whether all do the product.
#include <limits>

#include "kernels/cuda/ops/reduce/reduce_kernels.h"

namespace sluice::cuda {
namespace {

// Unsigned, so that they wrap around.
template <typename T>
struct SumOf {
  static constexpr const char* kName = "Sum";
  using State = uint64_t;
  static __device__ State Start() { return 0; }
  static __device__ State From(T x) { return static_cast<State>(x); }
  __device__ State operator()(State a, State b) const { return a + b; }
  static __device__ T Finish(State s, int64_t) { return static_cast<T>(s); }
};
template <typename T>
struct ProductOf : SumOf<T> {
  static constexpr const char* kName = "Prod";
  using State = uint64_t;
  static __device__ State Start() { return 1; }
  __device__ State operator()(State a, State b) const { return a * b; }
};
template <typename T>
constexpr T kLeast = std::numeric_limits<T>::lowest();
template <typename T>
constexpr T kMost = std::numeric_limits<T>::max();

// One width for all types is enough: shuffles have no bytes.
template <typename T>
struct MaxOf {
  static constexpr const char* kName = "Max";
  using State = int64_t;
  static __device__ State Start() { return kLeast<T>; }
  static __device__ State From(T x) { return x; }
  __device__ State operator()(State a, State b) const { return a > b ? a : b; }
  static __device__ T Finish(State s, int64_t) { return static_cast<T>(s); }
};
template <typename T>
struct MinOf : MaxOf<T> {
  static constexpr const char* kName = "Min";
  using State = int64_t;
  static __device__ State Start() { return kMost<T>; }
  __device__ State operator()(State a, State b) const { return a < b ? a : b; }
};

}  // namespace

Reduction FindIntegerReduce(std::string_view op, DType dtype) {
  if (dtype == DType::kBool) {
    if (op == "Any") return ReductionOf<MaxOf<uint8_t>, uint8_t>();
    if (op == "All") return ReductionOf<ProductOf<uint8_t>, uint8_t>();
    return {};
  }
  return DispatchAmong<int8_t, uint8_t, int32_t, int64_t>(
      dtype, [&]<typename T>(TypeTag<T>) -> Reduction {
        if (op == "Sum") return ReductionOf<SumOf<T>, T>();
        if (op == "Prod") return ReductionOf<ProductOf<T>, T>();
        if (op == "Max") return ReductionOf<MaxOf<T>, T>();
        if (op == "Min") return ReductionOf<MinOf<T>, T>();
        return {};
      });
}

}  // namespace sluice::cuda
