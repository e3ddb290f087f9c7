// Division that rounds up: how many pieces of one size hold so many elements.
// For the host, and for GPUs; code for one instruction set shares no inline
// function with it.
#ifndef SLUICE_ENGINE_CEIL_DIV_H_
#define SLUICE_ENGINE_CEIL_DIV_H_

#include <type_traits>

// Compiled for the CPU, and by nvcc for the GPU too.
#ifdef __CUDACC__
#define SLUICE_CEIL_DIV_FN __host__ __device__ constexpr
#else
#define SLUICE_CEIL_DIV_FN constexpr
#endif

namespace sluice {

// For integers a >= 0 and b > 0, in the type that a + b has.
template <typename A, typename B>
SLUICE_CEIL_DIV_FN std::common_type_t<A, B> CeilDiv(A a, B b) {
  return (a + b - 1) / b;
}

// The least multiple of b that is not below a.
template <typename A, typename B>
SLUICE_CEIL_DIV_FN std::common_type_t<A, B> RoundUp(A a, B b) {
  return CeilDiv(a, b) * b;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_CEIL_DIV_H_
