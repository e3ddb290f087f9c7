// The pixels under a convolution's windows as a matrix: a row for each result
// pixel, its taps one after another with their channels. It is read, never
// stored as a whole.
#ifndef SLUICE_KERNELS_CPU_CONV_CONV_PATCHES_H_
#define SLUICE_KERNELS_CPU_CONV_CONV_PATCHES_H_

#include <algorithm>

#include "engine/semantics/conv_geometry.h"
#include "kernels/cpu/gemm/gemm.h"

namespace sluice::cpu {

// Whether there are channels enough to read a patch in long runs, in one group.
inline bool HasPatches(const ConvGeometry& g) {
  return g.groups == 1 && g.in >= 32;
}

// The patches of a convolution of one group, as a matrix [images * h.output *
// w.output, taps() * in].
struct ConvPatches {
  const ConvGeometry* geometry;
  const float* x;

  MatrixReader<float> reader() const { return {Read, this}; }

 private:
  static void Read(const void* self, int64_t row, int64_t column, int64_t count,
                   float* out) {
    const auto& patches = *static_cast<const ConvPatches*>(self);
    const ConvGeometry& g = *patches.geometry;
    const int64_t ow = row % g.w.output;
    const int64_t line = row / g.w.output;
    const int64_t image = line / g.h.output;
    const int64_t top = g.h.Start(line % g.h.output);
    const int64_t left = g.w.Start(ow);
    int64_t tap = column / g.in;
    int64_t channel = column % g.in;
    while (count > 0) {
      const int64_t length = std::min(g.in - channel, count);
      const int64_t y = top + tap / g.w.window * g.h.dilation;
      const int64_t x = left + tap % g.w.window * g.w.dilation;
      if (y >= 0 && y < g.h.input && x >= 0 && x < g.w.input) {
        const float* pixel =
            patches.x + ((image * g.h.input + y) * g.w.input + x) * g.in;
        std::copy_n(pixel + channel, length, out);
      } else {
        std::fill_n(out, length, 0.0f);
      }
      out += length;
      count -= length;
      channel = 0;
      ++tap;
    }
  }
};

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_CONV_PATCHES_H_
