#include "kernels/cpu/simd/depthwise.h"

#include "kernels/cpu/simd/tables.h"
#include "kernels/cpu/simd/vector.h"

namespace sluice::SLUICE_ISA {
namespace {

// Vectors of channels summed side by side, so that additions overlap.
inline constexpr int kVectors = 4;
inline constexpr int64_t kBlock = kVectors * kLanes<float>;

// V vectors of channels from c on.
template <int V>
SLUICE_INLINE void PixelBlock(const float* const* x, const float* const* filter,
                              int64_t taps, int64_t c, bool accumulate,
                              float* y) {
  Vector<float> sum[V] = {};
  for (int64_t t = 0; t < taps; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const int64_t i = c + v * kLanes<float>;
      sum[v] += Load(x[t] + i) * Load(filter[t] + i);
    }
  }
  // To what is there at the end, of which more digits are left then.
  if (accumulate) {
    for (int v = 0; v < V; ++v) sum[v] += Load(y + c + v * kLanes<float>);
  }
  for (int v = 0; v < V; ++v) Store(y + c + v * kLanes<float>, sum[v]);
}

void Pixel(const float* const* x, const float* const* filter, int64_t taps,
           int64_t channels, bool accumulate, float* y) {
  int64_t c = 0;
  for (; c + kBlock <= channels; c += kBlock) {
    PixelBlock<kVectors>(x, filter, taps, c, accumulate, y);
  }
  for (; c + kLanes<float> <= channels; c += kLanes<float>) {
    PixelBlock<1>(x, filter, taps, c, accumulate, y);
  }
  for (; c < channels; ++c) {
    float sum = 0;
    for (int64_t t = 0; t < taps; ++t) sum += x[t][c] * filter[t][c];
    y[c] = accumulate ? y[c] + sum : sum;
  }
}

template <int V>
SLUICE_INLINE void TapBlock(const float* x, int64_t x_step, const float* dy,
                            int64_t dy_step, int64_t pixels, float* sum) {
  Vector<float> acc[V];
  for (int v = 0; v < V; ++v) acc[v] = Vector<float>{};
  for (int64_t q = 0; q < pixels; ++q, x += x_step, dy += dy_step) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      acc[v] += Load(x + v * kLanes<float>) * Load(dy + v * kLanes<float>);
    }
  }
  for (int v = 0; v < V; ++v) {  // at the end, as above
    float* const to = sum + v * kLanes<float>;
    Store(to, Load(to) + acc[v]);
  }
}

void TapGrad(const float* x, int64_t x_step, const float* dy, int64_t dy_step,
             int64_t pixels, int64_t channels, float* sum) {
  int64_t c = 0;
  for (; c + kBlock <= channels; c += kBlock) {
    TapBlock<kVectors>(x + c, x_step, dy + c, dy_step, pixels, sum + c);
  }
  for (; c + kLanes<float> <= channels; c += kLanes<float>) {
    TapBlock<1>(x + c, x_step, dy + c, dy_step, pixels, sum + c);
  }
  for (; c < channels; ++c) {
    float one = 0;
    for (int64_t q = 0; q < pixels; ++q) {
      one += x[q * x_step + c] * dy[q * dy_step + c];
    }
    sum[c] += one;
  }
}

}  // namespace

void AddDepthwise(simd::SimdKernels& table) noexcept {
  table.depthwise = {Pixel, TapGrad};
}

}  // namespace sluice::SLUICE_ISA
