// Reductions and updates of contiguous arrays.
#include "kernels/cpu/simd/reduction.h"

#include "kernels/cpu/simd/loop.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

float SumOf(const float* x, int64_t n) {
  return Sum(x, n);
}

double SumOfDouble(const double* x, int64_t n) {
  return Sum(x, n);
}

// As many floats as a vector has doubles.
struct Narrow {
  using Type __attribute__((vector_size(kVectorBytes / 2))) = float;
  using Stored __attribute__((vector_size(kVectorBytes / 2),
                              aligned(alignof(float)), may_alias)) = float;
};
SLUICE_INLINE Vector<double> LoadWide(const float* p) {
  const Narrow::Type floats = *reinterpret_cast<const Narrow::Stored*>(p);
  return __builtin_convertvector(floats, Vector<double>);
}

double SumSquares(const float* x, int64_t n) {
  return SumTerms<double>(
      n,
      [&](int64_t i) __attribute__((always_inline)) {
        const Vector<double> v = LoadWide(x + i);
        return v * v;
      },
      [&](int64_t i) { return double{x[i]} * double{x[i]}; });
}

float Max(const float* x, int64_t n) {
  return ExtremeOf<1>(x, n);
}

float Min(const float* x, int64_t n) {
  return ExtremeOf<-1>(x, n);
}

void Axpy(float a, const float* x, float* y, int64_t n) {
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

}  // namespace

void AddReductions(simd::SimdKernels& table) noexcept {
  table.sum = SumOf;
  table.sum_f64 = SumOfDouble;
  table.sum_squares = SumSquares;
  table.max = Max;
  table.min = Min;
  table.axpy = Axpy;
}

}  // namespace sluice::SLUICE_ISA
