// The inner loops of maximum pooling over NHWC images: one row of windows at a
// time, channels in vectors.
#ifndef SLUICE_KERNELS_CPU_SIMD_POOL_H_
#define SLUICE_KERNELS_CPU_SIMD_POOL_H_

#include <cstdint>

#include "engine/semantics/pool_argmax.h"

namespace sluice::simd {

// A row of windows over an image[height, width, channels].
struct PoolRow {
  int64_t width = 0, channels = 0;
  int64_t first_row = 0, end_row = 0;  // of the image, inside it
  int64_t cut = 0;                     // the window's rows above the image
  int64_t windows = 0;
  // Window o covers columns o * stride - pad ... + window, cut at the edges.
  int64_t stride = 0, pad = 0, window = 0;
};

struct PoolKernels {
  // y[windows, channels] = the largest under each window, NaN if any is.
  void (*max)(const PoolRow& row, const float* image, float* y);
  // As max, and also which element it is (pool_argmax.h): the first of equal
  // ones.
  void (*max_argmax)(const PoolRow& row, const float* image, float* y,
                     uint8_t* argmax);
  // Adds dy to dx where x is the first of its window not below y. Of dx only
  // the rows [begin, end) are touched.
  void (*max_grad)(const PoolRow& row, int64_t begin, int64_t end,
                   const float* x, const float* y, const float* dy, float* dx);
  // As max_grad, but from the argmax that max_argmax stored.
  void (*argmax_grad)(const PoolRow& row, int64_t begin, int64_t end,
                      const float* dy, const uint8_t* argmax, float* dx);
};

}  // namespace sluice::simd

#endif  // SLUICE_KERNELS_CPU_SIMD_POOL_H_
