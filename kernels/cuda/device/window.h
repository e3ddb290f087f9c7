// Windows that slide over images (engine/semantics/window.h), on the device;
// and how images of NHWC are walked: a thread takes 16 bytes along the channels
// of one pixel.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_WINDOW_H_
#define SLUICE_KERNELS_CUDA_DEVICE_WINDOW_H_

#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "engine/semantics/window.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

// The elements begin, begin + 1, ... before end.
struct Interval {
  int64_t begin, end;
};

// The input elements of window o that are no padding. Dilation 1.
__device__ inline Interval InsideOf(const WindowDim& d, int64_t o) {
  const int64_t start = o * d.stride - d.pad_before;
  return {scalar::Maximum()(start, int64_t{0}),
          scalar::Minimum()(start + d.window, d.input)};
}

// The windows that cover input element i. Dilation 1.
__device__ inline Interval WindowsOver(const WindowDim& d, int64_t i) {
  const int64_t past = i + d.pad_before;  // the start of the last that might
  const int64_t before = past - d.window;
  return {before < 0 ? 0 : Quotient(before, d.stride) + 1,
          scalar::Minimum()(Quotient(past, d.stride) + 1, d.output)};
}

// The window whose element k lies on input element i, or -1.
__device__ inline int64_t WindowAt(const WindowDim& d, int64_t i, int64_t k) {
  const int64_t start = i + d.pad_before - k * d.dilation;
  if (start < 0) return -1;
  const int64_t o = Quotient(start, d.stride);
  return o * d.stride == start && o < d.output ? o : -1;
}

// --- Pixels ------------------------------------------------------------------

// A task is a pack of N channels of a pixel.
template <int N>
int64_t PixelTasks(int64_t images, int64_t h, int64_t w, int64_t channels) {
  return images * h * w * CeilDiv(channels, N);
}

// May packs of channels be accessed at once in every pixel of these tensors?
template <typename T, typename... Pointers>
bool PixelsAreWhole(int64_t channels, Pointers... tensors) {
  return channels % kPack<T> == 0 && (IsAligned<T>(tensors) && ...);
}

struct PixelTask {
  int64_t image, row, column;
  int64_t channel;  // the first
};

template <int N>
__device__ PixelTask PixelTaskOf(int64_t task, int64_t h, int64_t w,
                                 int64_t channels) {
  const int64_t packs = CeilDiv(channels, N);
  PixelTask t{};
  const int64_t pixel = Quotient(task, packs);
  t.channel = (task - pixel * packs) * N;
  const int64_t line = Quotient(pixel, w);
  t.column = pixel - line * w;
  t.image = Quotient(line, h);
  t.row = line - t.image * h;
  return t;
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_WINDOW_H_
