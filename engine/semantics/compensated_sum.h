// Sums of very many numbers of float64. In one sum the last digits of each
// would be lost, and there is nothing wider to add them up in. The kernels of
// all devices share it.
#ifndef SLUICE_ENGINE_SEMANTICS_COMPENSATED_SUM_H_
#define SLUICE_ENGINE_SEMANTICS_COMPENSATED_SUM_H_

#include <type_traits>

// Compiled for the CPU, and by nvcc for the GPU too.
#ifdef __CUDACC__
#define SLUICE_SUM_FN __host__ __device__ __forceinline__
#else
#define SLUICE_SUM_FN inline
#endif

namespace sluice {

// A sum, and beside it what its additions rounded off, which makes it good to a
// unit in the last place of the sum of magnitudes. (Knuth, The Art of Computer
// Programming, volume 2, section 4.2.2, theorem B.)
class CompensatedSum {
 public:
  CompensatedSum() = default;
  SLUICE_SUM_FN explicit CompensatedSum(double x) : sum_(x) {}

  SLUICE_SUM_FN CompensatedSum& operator+=(CompensatedSum other) {
    const double before = sum_;
    sum_ += other.sum_;
    const double added = sum_ - before;
    lost_ += (before - (sum_ - added)) + (other.sum_ - added) + other.lost_;
    return *this;
  }
  // What an infinite sum, or NaN, has lost is no number.
  SLUICE_SUM_FN explicit operator double() const {
    return sum_ - sum_ == 0 ? sum_ + lost_ : sum_;
  }

 private:
  double sum_ = 0, lost_ = 0;
};

SLUICE_SUM_FN CompensatedSum operator+(CompensatedSum a, CompensatedSum b) {
  return a += b;
}

// What very many T, of a floating type, are added up in: double has digits to
// spare for narrower ones.
template <typename T>
using SumOfMany =
    std::conditional_t<std::is_same_v<T, double>, CompensatedSum, double>;

}  // namespace sluice

#undef SLUICE_SUM_FN

#endif  // SLUICE_ENGINE_SEMANTICS_COMPENSATED_SUM_H_
