// The transforms of Winograd's convolution F(4x4, 3x3): 16 pixels of a 3x3
// convolution from 36 multiplications per pair of channels in place of 144
// (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016).
//
//   y = A^T [(G g G^T) . (B^T d B)] A     d: 6x6 pixels, g: 3x3 taps, y: 4x4
//
// The same three matrices give the gradient with respect to the filter,
// dg = G^T [(B^T d B) . (A dy A^T)] G, summed over tiles.
//
// The polynomials are evaluated at 0, -+sqrt(1/2), -+sqrt(2) and infinity. Each
// pair of points is the other's inverse, which halves the rounding error that
// the customary 0, -+1, -+2 give (compare Alam et al., "Winograd convolution
// for deep neural networks: efficient point selection", 2022).
//
// "Points" below are the 36 elements of a transformed tile, row by row; each is
// a matrix, point_step floats after the one before. Within a point the channel
// c is at c / width * panel_step + c % width, width as in GemmKernels::columns:
// in panels, or in rows with panel_step = width. Channels are whole panels.
#ifndef SLUICE_KERNELS_CPU_SIMD_WINOGRAD_H_
#define SLUICE_KERNELS_CPU_SIMD_WINOGRAD_H_

#include <cstdint>

namespace sluice::simd {

inline constexpr int kWinogradResult = 4;  // pixels of a result tile's side
inline constexpr int kWinogradSource = 6;  // pixels of a source tile's side
inline constexpr int kWinogradPoints = kWinogradSource * kWinogradSource;

struct WinogradMatrix {
  float* points = nullptr;
  int64_t point_step = 0;
  int64_t panel_step = 0;
};

// The epilogue of a result: y = act(y + bias + addend).
struct WinogradEpilogue {
  const float* bias = nullptr;           // [channels]; null: nothing follows
  const float* const* addend = nullptr;  // pixels like y's, or null
  bool relu = false;
};

struct WinogradKernels {
  // B^T d B of the pixels d[36], each `channels` floats.
  void (*source)(const float* const* d, int64_t channels,
                 const WinogradMatrix& v);
  // G g G^T of the taps g[9].
  void (*filter)(const float* const* g, int64_t channels,
                 const WinogradMatrix& u);
  // A^T m A, and what follows, into the pixels y[16].
  void (*result)(const WinogradMatrix& m, int64_t channels,
                 const WinogradEpilogue& epilogue, float* const* y);
  // A dy A^T of the pixels dy[16].
  void (*result_grad)(const float* const* dy, int64_t channels,
                      const WinogradMatrix& w);
  // G^T u G into the taps dg[9].
  void (*filter_grad)(const WinogradMatrix& u, int64_t channels,
                      float* const* dg);
};

}  // namespace sluice::simd

#endif  // SLUICE_KERNELS_CPU_SIMD_WINOGRAD_H_
