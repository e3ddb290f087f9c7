// The operands of the vector code of batch normalisation: a block of rows, NHWC
// images seen as a matrix [rows, channels]. Plain data, shared by the files of
// this folder and the kernels that drive them; the reference loops of other
// dtypes take the same records. T is the tensors' type, C that of statistics.
#ifndef SLUICE_KERNELS_CPU_SIMD_BATCH_NORM_H_
#define SLUICE_KERNELS_CPU_SIMD_BATCH_NORM_H_

#include <cstdint>

namespace sluice::simd {

// All pointers are to the block's first row. A mask holds one bit for each
// element, that of element i in byte i / 8 at i % 8; a block begins at a whole
// byte.

// y = (x - mean) * factor + offset + addend, and with a mask, whose bits say
// where that is positive, max(0, y). y may be x or addend.
template <typename T, typename C>
struct BatchNormBlock {
  int64_t rows = 0, channels = 0;
  const T* x = nullptr;
  const T* addend = nullptr;  // or null
  const C* mean = nullptr;
  const C* factor = nullptr;
  const C* offset = nullptr;
  T* y = nullptr;
  uint8_t* mask = nullptr;  // or null
  bool stream = false;      // past the caches: y is aligned and too large
};

// Columns whose distances from their means are summed at a time. A sum of many
// rows has lost what a mean that is large beside these distances is off by; the
// sum of the distances has it, and corrects the mean and the squares (Chan,
// Golub and LeVeque, "Algorithms for computing the sample variance", 1983,
// equation 1.7).
inline constexpr int64_t kMomentsTile = 512;
// off: the sums of so many columns' distances; scale: 1 / rows.
template <typename C>
__attribute__((always_inline)) inline void CorrectMoments(int64_t columns,
                                                          C scale, const C* off,
                                                          C* mean, C* squares) {
  for (int64_t c = 0; c < columns; ++c) {
    const C shift = off[c] * scale;
    mean[c] += shift;
    const C square = squares[c] - off[c] * shift;
    squares[c] = square < 0 ? C(0) : square;  // NaN stays
  }
}

// The gradient g of the normalised x is dy + dy2 where the mask's bit is set,
// all of it without a mask.
template <typename T, typename C>
struct BatchNormGradBlock {
  int64_t rows = 0, channels = 0;
  const T* x = nullptr;
  const T* dy = nullptr;
  const T* dy2 = nullptr;         // or null
  const uint8_t* mask = nullptr;  // or null
  const C* mean = nullptr;
  // First pass: the columns' sums of g and of g * (x - mean), and g itself
  // where it is kept, which may be dy or dy2.
  C* sum = nullptr;
  C* dot = nullptr;
  T* g = nullptr;  // or null
  // Second pass: dx = g * factor + (x - mean) * slope + shift. dx may be dy.
  const C* factor = nullptr;
  const C* slope = nullptr;
  const C* shift = nullptr;
  T* dx = nullptr;
  bool stream = false;  // as above, for what the pass writes: g, then dx
};

// float32, for channels in multiples of kBatchNormLanes.
inline constexpr int64_t kBatchNormLanes = 8;
struct BatchNormKernels {
  // The columns' means and sums of squared distances from them.
  void (*moments)(const float* x, int64_t rows, int64_t channels, float* mean,
                  float* squares);
  void (*normalize)(const BatchNormBlock<float, float>& block);
  // dy2 comes with a mask and g, g with a mask.
  void (*grad_sums)(const BatchNormGradBlock<float, float>& block);
  void (*grad)(const BatchNormGradBlock<float, float>& block);  // dy2 is null
};

}  // namespace sluice::simd

#endif  // SLUICE_KERNELS_CPU_SIMD_BATCH_NORM_H_
