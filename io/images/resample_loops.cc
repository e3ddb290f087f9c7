#include "io/images/resample_loops.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice {
namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

using Source = ResampleKernel::Source;

// One new pixel of `channels` bytes; its old ones lie `step` bytes apart.
void Blend(const int32_t* weights, int64_t count, const uint8_t* old,
           int64_t step, int64_t channels, uint8_t* out) {
  for (int64_t c = 0; c < channels; ++c) {
    int32_t sum = kHalf;
    const uint8_t* pixel = old + c;
    for (int64_t i = 0; i < count; ++i, pixel += step) {
      sum += weights[i] * *pixel;
    }
    out[c] = static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
  }
}

// New pixels [begin, end) of a row.
void BlendPixels(const ResampleKernel& kernel, int64_t begin, int64_t end,
                 const uint8_t* row, int64_t channels, uint8_t* out) {
  for (int64_t i = begin; i < end; ++i) {
    const Source& source = kernel.sources[i];
    Blend(kernel.weights_of(i), source.count, row + source.first * channels,
          channels, channels, out + i * channels);
  }
}

void AcrossPortably(const ResampleKernel& kernel, const uint8_t* row,
                    int64_t /*width*/, int64_t channels, uint8_t* out) {
  BlendPixels(kernel, 0, static_cast<int64_t>(kernel.sources.size()), row,
              channels, out);
}

void DownPortably(const ResampleKernel& kernel, int64_t i, const uint8_t* rows,
                  int64_t row_bytes, uint8_t* out) {
  const Source& source = kernel.sources[i];
  Blend(kernel.weights_of(i), source.count, rows + source.first * row_bytes,
        row_bytes, row_bytes, out);
}

constexpr ResampleLoops kPortable = {AcrossPortably, DownPortably};

#if defined(__x86_64__)
// An even number of RGB pixels, two at a time, one in each half of a register
// as 4 x int32. Reads 16 bytes at each group of taps and writes 4 at each
// pixel.
__attribute__((target("avx2"))) void BlendRgbAvx2(
    const Source* sources, int64_t n, const int32_t* weights, int64_t taps,
    const uint8_t* row, uint8_t* out) {
  // Where the bytes of the group's first pixel go, second, third, fourth.
  const __m256i tap0 = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, -1, -1, -1, -1));
  const __m256i tap1 = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      3, -1, -1, -1, 4, -1, -1, -1, 5, -1, -1, -1, -1, -1, -1, -1));
  const __m256i tap2 = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      6, -1, -1, -1, 7, -1, -1, -1, 8, -1, -1, -1, -1, -1, -1, -1));
  const __m256i tap3 = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      9, -1, -1, -1, 10, -1, -1, -1, 11, -1, -1, -1, -1, -1, -1, -1));
  for (int64_t i = 0; i < n; i += 2, weights += 2 * taps, out += 6) {
    const uint8_t* left = row + sources[i].first * 3;
    const uint8_t* right = row + sources[i + 1].first * 3;
    __m256i sums = _mm256_set1_epi32(kHalf);
    for (int64_t t = 0; t < taps; t += 4) {
      const __m256i old =
          _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(right + t * 3),
                              reinterpret_cast<const __m128i*>(left + t * 3));
      const __m256i w = _mm256_loadu2_m128i(
          reinterpret_cast<const __m128i*>(weights + taps + t),
          reinterpret_cast<const __m128i*>(weights + t));
      const __m256i a = _mm256_mullo_epi32(_mm256_shuffle_epi8(old, tap0),
                                           _mm256_shuffle_epi32(w, 0x00));
      const __m256i b = _mm256_mullo_epi32(_mm256_shuffle_epi8(old, tap1),
                                           _mm256_shuffle_epi32(w, 0x55));
      const __m256i c = _mm256_mullo_epi32(_mm256_shuffle_epi8(old, tap2),
                                           _mm256_shuffle_epi32(w, 0xaa));
      const __m256i d = _mm256_mullo_epi32(_mm256_shuffle_epi8(old, tap3),
                                           _mm256_shuffle_epi32(w, 0xff));
      sums = _mm256_add_epi32(sums, _mm256_add_epi32(_mm256_add_epi32(a, b),
                                                     _mm256_add_epi32(c, d)));
    }
    const __m256i shifted = _mm256_srai_epi32(sums, kWeightBits);
    const __m256i words = _mm256_packus_epi32(shifted, shifted);
    const __m256i bytes = _mm256_packus_epi16(words, words);
    _mm_storeu_si32(out, _mm256_castsi256_si128(bytes));
    _mm_storeu_si32(out + 3, _mm256_extracti128_si256(bytes, 1));
  }
}

void AcrossAvx2(const ResampleKernel& kernel, const uint8_t* row, int64_t width,
                int64_t channels, uint8_t* out) {
  if (channels != 3) return AcrossPortably(kernel, row, width, channels, out);
  // The vectors must not reach beyond the row, nor beyond the result: pixels
  // made of the row's end, which a flip puts first, and the last are excepted.
  const auto n = static_cast<int64_t>(kernel.sources.size());
  const auto reaches_beyond = [&](int64_t i) {
    return (kernel.sources[i].first + kernel.taps) * 3 + 4 > width * 3;
  };
  int64_t begin = 0, end = std::max<int64_t>(n - 1, 0);
  while (begin < end && reaches_beyond(begin)) ++begin;
  while (end > begin && reaches_beyond(end - 1)) --end;
  end -= (end - begin) % 2;
  // In order, since each vector's fourth byte is the next pixel's first.
  BlendPixels(kernel, 0, begin, row, channels, out);
  BlendRgbAvx2(kernel.sources.data() + begin, end - begin,
               kernel.weights_of(begin), kernel.taps, row, out + begin * 3);
  BlendPixels(kernel, end, n, row, channels, out);
}

constexpr int64_t kBlock = 32;  // bytes

// The weighted sum of `count` rows, bytes [0, row_bytes), of which there are
// kBlock or more.
__attribute__((target("avx2"))) void BlendRowsAvx2(const int32_t* weights,
                                                   int64_t count,
                                                   const uint8_t* rows,
                                                   int64_t row_bytes,
                                                   uint8_t* out) {
  const __m256i half = _mm256_set1_epi32(kHalf);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int64_t done = 0; done < row_bytes; done += kBlock) {
    // The last block overlaps the one before it.
    const int64_t at = done + kBlock <= row_bytes ? done : row_bytes - kBlock;
    const uint8_t* old = rows + at;
    __m256i a = half, b = half, c = half, d = half;
    for (int64_t t = 0; t < count; ++t, old += row_bytes) {
      const __m256i weight = _mm256_set1_epi32(weights[t]);
      const __m256i i = _mm256_cvtepu8_epi32(_mm_loadu_si64(old));
      const __m256i j = _mm256_cvtepu8_epi32(_mm_loadu_si64(old + 8));
      const __m256i k = _mm256_cvtepu8_epi32(_mm_loadu_si64(old + 16));
      const __m256i l = _mm256_cvtepu8_epi32(_mm_loadu_si64(old + 24));
      a = _mm256_add_epi32(a, _mm256_mullo_epi32(i, weight));
      b = _mm256_add_epi32(b, _mm256_mullo_epi32(j, weight));
      c = _mm256_add_epi32(c, _mm256_mullo_epi32(k, weight));
      d = _mm256_add_epi32(d, _mm256_mullo_epi32(l, weight));
    }
    // Packing works within halves, so `order` sorts fours of bytes.
    const __m256i ab = _mm256_packus_epi32(_mm256_srai_epi32(a, kWeightBits),
                                           _mm256_srai_epi32(b, kWeightBits));
    const __m256i cd = _mm256_packus_epi32(_mm256_srai_epi32(c, kWeightBits),
                                           _mm256_srai_epi32(d, kWeightBits));
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out + at),
        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), order));
  }
}

void DownAvx2(const ResampleKernel& kernel, int64_t i, const uint8_t* rows,
              int64_t row_bytes, uint8_t* out) {
  if (row_bytes < kBlock) return DownPortably(kernel, i, rows, row_bytes, out);
  const Source& source = kernel.sources[i];
  BlendRowsAvx2(kernel.weights_of(i), source.count,
                rows + source.first * row_bytes, row_bytes, out);
}

constexpr ResampleLoops kAvx2 = {AcrossAvx2, DownAvx2};
#endif

}  // namespace

const ResampleLoops& PortableResampleLoops() {
  return kPortable;
}

const ResampleLoops& FastestResampleLoops() {
#if defined(__x86_64__)
  static const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
  if (kHasAvx2) return kAvx2;
#endif
  return kPortable;
}

}  // namespace sluice
