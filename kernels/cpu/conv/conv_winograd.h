// Winograd's form of 3x3 convolutions (kernels/cpu/simd/winograd.h): which ones
// take it, and how an image falls into tiles.
//
// Errors relative to the result, root mean square and largest (conv_bench
// --errors --batch 4, random numbers of -1 to 1), beside the direct kernel's:
//
//   channels  pixels  pass       Winograd          direct
//     64      56x56   y, dx      7.9e-7  1.7e-6    4.3e-7  1.1e-6
//                     dfilter    1.5e-6  1.6e-6    2.8e-7  2.5e-7
//    128      28x28   y, dx      1.1e-6  2.2e-6    6.0e-7  1.6e-6
//                     dfilter    1.3e-6  2.1e-6    2.5e-7  3.0e-7
//    256      14x14   y, dx      1.5e-6  3.1e-6    8.3e-7  2.0e-6
//                     dfilter    7.8e-7  1.2e-6    2.4e-7  3.4e-7
//    512      7x7     y, dx      1.4e-6  2.5e-6    1.1e-6  2.4e-6
//                     dfilter    4.6e-7  8.3e-7    1.2e-7  2.0e-7
#ifndef SLUICE_KERNELS_CPU_CONV_CONV_WINOGRAD_H_
#define SLUICE_KERNELS_CPU_CONV_CONV_WINOGRAD_H_

#include <algorithm>
#include <cstdint>

#include "engine/ceil_div.h"
#include "engine/semantics/conv_geometry.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

// Whether the kernels of this form serve a spec: one group, 3x3 taps side by
// side, strides of 1, whole panels of channels, and enough channels and tiles
// to repay the transforms (docs/performance.md).
bool WinogradServes(const KernelSpec& spec);

// Tiles of 4x4 result pixels, and the 6x6 source pixels under each, of all
// images one after another. The result may be y or, seen from dy, dx.
struct WinogradTiles {
  int64_t images = 0;
  int64_t source_h = 0, source_w = 0;
  int64_t result_h = 0, result_w = 0;
  int64_t pad_top = 0, pad_left = 0;  // of the source

  int64_t down() const { return Tiles(result_h); }
  int64_t across() const { return Tiles(result_w); }
  int64_t count() const { return images * down() * across(); }

  // Points pixels[36] and [16] at a tile's pixels of `channels` floats; at
  // `outside` where there are none.
  void Source(int64_t tile, const float* images_begin, int64_t channels,
              const float* outside, const float** pixels) const {
    Pixels<simd::kWinogradSource>(tile, source_h, source_w, pad_top, pad_left,
                                  images_begin, channels, outside, pixels);
  }
  template <typename Float>  // float or const float
  void Result(int64_t tile, Float* images_begin, int64_t channels,
              Float* outside, Float** pixels) const {
    Pixels<simd::kWinogradResult>(tile, result_h, result_w, 0, 0, images_begin,
                                  channels, outside, pixels);
  }

 private:
  static int64_t Tiles(int64_t size) {
    return CeilDiv(size, simd::kWinogradResult);
  }
  template <int kSide, typename Float>
  void Pixels(int64_t tile, int64_t h, int64_t w, int64_t top, int64_t left,
              Float* begin, int64_t channels, Float* outside,
              Float** pixels) const {
    const int64_t column = tile % across();
    const int64_t row = tile / across() % down();
    const int64_t image = tile / across() / down();
    const int64_t y0 = row * simd::kWinogradResult - top;
    const int64_t x0 = column * simd::kWinogradResult - left;
    for (int64_t i = 0; i < kSide; ++i) {
      const int64_t y = y0 + i;
      const bool inside = y >= 0 && y < h;
      Float* line = begin + (image * h + (inside ? y : 0)) * w * channels;
      for (int64_t j = 0; j < kSide; ++j) {
        const int64_t x = x0 + j;
        pixels[i * kSide + j] =
            inside && x >= 0 && x < w ? line + x * channels : outside;
      }
    }
  }
};

WinogradTiles ForwardTiles(const ConvGeometry& g);
// dx from dy.
WinogradTiles BackpropInputTiles(const ConvGeometry& g);

// Floats from one point of a transformed tile to the next: a little more than
// its matrix, or a tile's 36 stores would fall on few cache sets.
inline int64_t WinogradPointStep(int64_t matrix_floats) {
  return RoundUp(matrix_floats, 16) + 16;
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_CONV_WINOGRAD_H_
