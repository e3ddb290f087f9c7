// The inner loops of depthwise convolution, where channel c of the result comes
// from channel c of the images alone: vectors of channels, no matrix product.
#ifndef SLUICE_KERNELS_CPU_SIMD_DEPTHWISE_H_
#define SLUICE_KERNELS_CPU_SIMD_DEPTHWISE_H_

#include <cstdint>

namespace sluice::simd {

struct DepthwiseKernels {
  // y[c] = (accumulate ? y[c] : 0) + sum over t of x[t][c] * filter[t][c].
  void (*pixel)(const float* const* x, const float* const* filter, int64_t taps,
                int64_t channels, bool accumulate, float* y);
  // sum[c] += sum over q of x[q * x_step + c] * dy[q * dy_step + c].
  void (*tap_grad)(const float* x, int64_t x_step, const float* dy,
                   int64_t dy_step, int64_t pixels, int64_t channels,
                   float* sum);
};

}  // namespace sluice::simd

#endif  // SLUICE_KERNELS_CPU_SIMD_DEPTHWISE_H_
