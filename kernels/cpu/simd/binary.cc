// Loops of the elementwise ops of two operands, on contiguous runs: the caller
// cuts a broadcast into runs where each operand is an array or one element.
#include "engine/semantics/scalar.h"
#include "kernels/cpu/simd/loop.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

template <typename Op, typename T, typename Out>
void VectorVector(const void* a_data, const void* b_data, void* y_data,
                  int64_t n, simd::OpParams params) {
  const Op op = scalar::MakeOp<Op>(params.a, params.b);
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  Out* y = static_cast<Out*>(y_data);
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = op(a[i], b[i]);
}

template <typename Op, typename T, typename Out>
void VectorScalar(const void* a_data, const void* b_data, void* y_data,
                  int64_t n, simd::OpParams params) {
  const Op op = scalar::MakeOp<Op>(params.a, params.b);
  const T* a = static_cast<const T*>(a_data);
  const T b = *static_cast<const T*>(b_data);
  Out* y = static_cast<Out*>(y_data);
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = op(a[i], b);
}

template <typename Op, typename T, typename Out>
void ScalarVector(const void* a_data, const void* b_data, void* y_data,
                  int64_t n, simd::OpParams params) {
  const Op op = scalar::MakeOp<Op>(params.a, params.b);
  const T a = *static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  Out* y = static_cast<Out*>(y_data);
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = op(a, b[i]);
}

template <typename Op, typename T, typename Out>
constexpr simd::BinaryFns Forms() {
  return {VectorVector<Op, T, Out>, VectorScalar<Op, T, Out>,
          ScalarVector<Op, T, Out>};
}

template <typename Op, typename Predicate>
struct Entries;
template <typename... Ops, typename... Predicates>
struct Entries<scalar::OpList<Ops...>, scalar::OpList<Predicates...>> {
  static constexpr simd::BinaryEntry kAll[] = {
      {Ops::kName, Forms<Ops, float, float>(), Forms<Ops, double, double>()}...,
      {Predicates::kName, Forms<Predicates, float, bool>(),
       Forms<Predicates, double, bool>()}...};
};

}  // namespace

void AddBinary(simd::SimdKernels& table) noexcept {
  using All = Entries<scalar::BinaryOps, scalar::BinaryPredicates>;
  table.binary = All::kAll;
  table.num_binary = sizeof(All::kAll) / sizeof(All::kAll[0]);
}

}  // namespace sluice::SLUICE_ISA
