// The reference loops of batch normalisation, over the rows of a block; inner
// loops run over the channels.
#include <algorithm>
#include <array>

#include "engine/ceil_div.h"
#include "kernels/cpu/norm/batch_norm.h"

namespace sluice::cpu {
namespace {

template <typename T, typename C = ComputeType<T>>
void Moments(const T* x, int64_t rows, int64_t channels, C* __restrict mean,
             C* __restrict squares) {
  const C scale = C(1) / static_cast<C>(rows);
  std::array<C, simd::kMomentsTile> off;
  for (int64_t first = 0; first < channels; first += simd::kMomentsTile) {
    const int64_t width = std::min(simd::kMomentsTile, channels - first);
    C* const m = mean + first;
    C* const s = squares + first;
    std::fill_n(m, width, C(0));
    std::fill_n(s, width, C(0));
    std::fill_n(off.begin(), width, C(0));
    const T* row = x + first;
    for (int64_t r = 0; r < rows; ++r, row += channels) {
      for (int64_t c = 0; c < width; ++c) m[c] += static_cast<C>(row[c]);
    }
    for (int64_t c = 0; c < width; ++c) m[c] *= scale;
    row = x + first;
    for (int64_t r = 0; r < rows; ++r, row += channels) {
      for (int64_t c = 0; c < width; ++c) {
        const C d = static_cast<C>(row[c]) - m[c];
        off[c] += d;
        s[c] += d * d;
      }
    }
    simd::CorrectMoments(width, scale, off.data(), m, s);
  }
}

// (x - mean) * factor stays exact where the mean is large.
template <typename T, typename C = ComputeType<T>>
void Normalize(const simd::BatchNormBlock<T, C>& b) {
  const int64_t n = b.rows * b.channels;
  if (b.mask != nullptr) std::fill(b.mask, b.mask + CeilDiv(n, 8), uint8_t{0});
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t row = r * b.channels;
    for (int64_t c = 0; c < b.channels; ++c) {
      const int64_t i = row + c;
      C y = (static_cast<C>(b.x[i]) - b.mean[c]) * b.factor[c] + b.offset[c];
      if (b.addend != nullptr) y += static_cast<C>(b.addend[i]);
      if (b.mask != nullptr) {
        if (y > C(0)) b.mask[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
        y = C(0) > y ? C(0) : y;
      }
      b.y[i] = T(y);
    }
  }
}

template <typename T, typename C = ComputeType<T>>
C GradAt(const simd::BatchNormGradBlock<T, C>& b, int64_t i) {
  if (b.mask != nullptr && (b.mask[i / 8] >> (i % 8) & 1) == 0) return C(0);
  const C g = static_cast<C>(b.dy[i]);
  return b.dy2 == nullptr ? g : g + static_cast<C>(b.dy2[i]);
}

template <typename T, typename C = ComputeType<T>>
void GradSums(const simd::BatchNormGradBlock<T, C>& b) {
  std::fill(b.sum, b.sum + b.channels, C(0));
  std::fill(b.dot, b.dot + b.channels, C(0));
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t row = r * b.channels;
    for (int64_t c = 0; c < b.channels; ++c) {
      const int64_t i = row + c;
      const C g = GradAt(b, i);
      if (b.g != nullptr) b.g[i] = T(g);
      b.sum[c] += g;
      b.dot[c] += g * (static_cast<C>(b.x[i]) - b.mean[c]);
    }
  }
}

template <typename T, typename C = ComputeType<T>>
void Grad(const simd::BatchNormGradBlock<T, C>& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t row = r * b.channels;
    for (int64_t c = 0; c < b.channels; ++c) {
      const int64_t i = row + c;
      const C distance = static_cast<C>(b.x[i]) - b.mean[c];
      b.dx[i] =
          T(GradAt(b, i) * b.factor[c] + distance * b.slope[c] + b.shift[c]);
    }
  }
}

}  // namespace

template <typename T>
BatchNormLoops<T> ReferenceBatchNormLoops() {
  return {Moments<T>, Normalize<T>, GradSums<T>, Grad<T>};
}
template BatchNormLoops<float> ReferenceBatchNormLoops();
template BatchNormLoops<double> ReferenceBatchNormLoops();
template BatchNormLoops<Half> ReferenceBatchNormLoops();
template BatchNormLoops<BFloat16> ReferenceBatchNormLoops();

}  // namespace sluice::cpu
