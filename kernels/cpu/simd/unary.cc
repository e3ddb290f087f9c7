// Loops of the elementwise ops of one operand.
#include "engine/semantics/scalar.h"
#include "kernels/cpu/simd/loop.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

// Some functions have a branch-free form Near() for |x| <= kTrigLimit only.
template <typename Op>
concept HasNear = requires(const Op& op) {
  op.Near(0.0f);
};

inline constexpr int64_t kNearBlock = 256;

bool AllNear(const float* x, int64_t n) {
  int far = 0;
  for (int64_t i = 0; i < n; ++i) {
    far |= !(scalar::Abs()(x[i]) <= scalar::kTrigLimit);
  }
  return far == 0;
}

template <typename Op, typename T, typename Out>
void Unary(const void* x_data, void* y_data, int64_t n, simd::OpParams params) {
  const Op op = scalar::MakeOp<Op>(params.a, params.b);
  const T* x = static_cast<const T*>(x_data);
  Out* y = static_cast<Out*>(y_data);
  if constexpr (HasNear<Op> && sizeof(T) == sizeof(float)) {
    for (; n > 0; n -= kNearBlock, x += kNearBlock, y += kNearBlock) {
      const int64_t block = n < kNearBlock ? n : kNearBlock;
      if (AllNear(x, block)) {
        SLUICE_INDEPENDENT
        for (int64_t i = 0; i < block; ++i) y[i] = op.Near(x[i]);
      } else {
        for (int64_t i = 0; i < block; ++i) y[i] = op(x[i]);
      }
    }
  } else {
    SLUICE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = op(x[i]);
  }
}

template <typename Op, typename Predicate>
struct Entries;
template <typename... Ops, typename... Predicates>
struct Entries<scalar::OpList<Ops...>, scalar::OpList<Predicates...>> {
  static constexpr simd::UnaryEntry kAll[] = {
      {Ops::kName, Unary<Ops, float, float>, Unary<Ops, double, double>}...,
      {Predicates::kName, Unary<Predicates, float, bool>,
       Unary<Predicates, double, bool>}...};
};

}  // namespace

void AddUnary(simd::SimdKernels& table) noexcept {
  using All = Entries<scalar::UnaryOps, scalar::UnaryPredicates>;
  table.unary = All::kAll;
  table.num_unary = sizeof(All::kAll) / sizeof(All::kAll[0]);
}

}  // namespace sluice::SLUICE_ISA
