// How a product is cut, from its sizes alone.
#ifndef SLUICE_KERNELS_CPU_GEMM_GEMM_CUT_H_
#define SLUICE_KERNELS_CPU_GEMM_GEMM_CUT_H_

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice {

// Rows of C per task: they and kMaxTileK columns of A fit half of an L2 cache
// of 256 KiB.
inline constexpr int64_t kMaxTaskRows = 96;

// Not at all where a size is 0.
struct GemmCut {
  bool pack_b = false;
  int64_t task_rows = 0;     // of C
  int64_t task_columns = 0;  // of C, whole panels
  int64_t columns = 0;       // of C that share one packing of B
  int64_t depth = 0;         // of k likewise, whole blocks of kMaxTileK
  int64_t slices = 1;        // of a round of k, summed at its end
  int64_t slice_depth = 0;   // whole blocks
  // Of k, whole blocks or all of it. What more than one round comes to is added
  // up as SumOfMany<T>: in one sum of very many blocks the last digits of each
  // would be lost.
  int64_t round = 0;
  int64_t packed = 0;   // elements of packed B, of each slice
  int64_t partial = 0;  // elements of C that each slice needs
};

template <typename T>
GemmCut CutOf(const Gemm<T>& gemm);
extern template GemmCut CutOf<float>(const Gemm<float>&);
extern template GemmCut CutOf<double>(const Gemm<double>&);

// The vector code that multiplies what is cut.
template <typename T>
const simd::GemmKernels<T>& TileKernels() {
  if constexpr (std::is_same_v<T, float>) {
    return Simd().gemm_f32;
  } else {
    return Simd().gemm_f64;
  }
}

}  // namespace sluice

#endif  // SLUICE_KERNELS_CPU_GEMM_GEMM_CUT_H_
