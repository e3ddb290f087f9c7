// Vectors of the instruction set being compiled for, as GCC's and clang's
// vector extensions: one source for SSE2, AVX2, AVX-512 and NEON. A width the
// hardware lacks compiles too (into several narrower operations), which is how
// the 64-byte code is tested on machines without AVX-512.
//
// Included only by the files of this folder and their test.
#ifndef SLUICE_KERNELS_CPU_SIMD_VECTOR_H_
#define SLUICE_KERNELS_CPU_SIMD_VECTOR_H_

#include <cstdint>

namespace sluice::SLUICE_ISA {
namespace {

#if defined(SLUICE_VECTOR_BYTES)
inline constexpr int kVectorBytes = SLUICE_VECTOR_BYTES;
#elif defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <typename T>
struct VectorOf {
  using Type __attribute__((vector_size(kVectorBytes))) = T;
  // A vector in memory, at any alignment.
  using Stored __attribute__((vector_size(kVectorBytes), aligned(alignof(T)),
                              may_alias)) = T;
};
template <typename T>
using Vector = typename VectorOf<T>::Type;

template <typename T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

// Macros' stand-ins would cross functions with vectors by value, whose calling
// convention depends on the instruction set: all helpers are inlined.
#define SLUICE_INLINE inline __attribute__((always_inline))

template <typename T>
SLUICE_INLINE Vector<T> Load(const T* p) {
  return *reinterpret_cast<const typename VectorOf<T>::Stored*>(p);
}

template <typename T>
SLUICE_INLINE void Store(T* p, Vector<T> v) {
  *reinterpret_cast<typename VectorOf<T>::Stored*>(p) = v;
}

template <typename T>
SLUICE_INLINE Vector<T> Broadcast(T x) {
  return x - Vector<T>{};
}

}  // namespace
}  // namespace sluice::SLUICE_ISA

#endif  // SLUICE_KERNELS_CPU_SIMD_VECTOR_H_
