// The part of a matrix product that one call of the vector code computes:
// C[m,n] = act(addend + A[m,k] B[k,n] + bias).
#ifndef SLUICE_KERNELS_CPU_SIMD_GEMM_TILE_H_
#define SLUICE_KERNELS_CPU_SIMD_GEMM_TILE_H_

#include <cstdint>

namespace sluice::simd {

// Longest k of one GemmTile, in elements: a panel of B then stays in L1. Fixed,
// because it decides the order of summation.
inline constexpr int64_t kMaxTileK = 256;

// Elements to leave free after each tile that `pack_a` fills.
inline constexpr int64_t kTilePadding = 16;

// Bytes of packed B from which it should be fetched ahead.
inline constexpr int64_t kFarBytes = 1 << 20;

template <typename T>
struct GemmTile {
  int64_t m = 0, n = 0, k = 0;
  // A[i,p] at a[i * a_row_stride + p * a_column_stride]; or, when a_packed, in
  // the register tiles' order made by `pack_a`, a_row_stride elements apart.
  const T* a = nullptr;
  int64_t a_row_stride = 0;
  int64_t a_column_stride = 0;
  bool a_packed = false;
  // B[p,j] at b[p * b_stride + j], or, when b_packed, in panels made by
  // `pack` that are b_stride elements apart.
  const T* b = nullptr;
  int64_t b_stride = 0;
  bool b_packed = false;
  // The panel that is read after these, where a packed B is too large to be in
  // L2; else null. Each panel is then fetched while the one before is used.
  const T* next_b = nullptr;
  // Elements of any matrix that are wanted after this call, fetched evenly over
  // it; or null.
  const T* fetch = nullptr;
  int64_t fetch_count = 0;
  T* c = nullptr;
  int64_t ldc = 0;
  const T* addend = nullptr;  // [m,n], rows ldc apart, maybe C; or null
  bool relu = false;
  const T* bias = nullptr;  // [n], or null
};

}  // namespace sluice::simd

#endif  // SLUICE_KERNELS_CPU_SIMD_GEMM_TILE_H_
