// Batch normalisation over blocks of rows, eight channels at a time. Rows are
// taken four or two together, so that the columns' sums are loaded and stored
// less often than the elements.
#include "kernels/cpu/simd/batch_norm.h"

#include "kernels/cpu/simd/stream.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

using Block = simd::BatchNormBlock<float, float>;
using GradBlock = simd::BatchNormGradBlock<float, float>;
using V = StreamVector;

inline constexpr int kGroup = static_cast<int>(simd::kBatchNormLanes);

SLUICE_INLINE V Masked(V v, StreamBits lanes) {
  return reinterpret_cast<V>(reinterpret_cast<StreamBits>(v) & lanes);
}

// Rows taken together make several short runs of what is one long one, which
// the hardware fetches ahead too little.
SLUICE_INLINE void Fetch(const float* x) {
  constexpr int64_t kAhead = 2048;  // floats
  __builtin_prefetch(x + kAhead);
}

void Zero(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0;
}

// total[c] += x of rows [0, kRows).
template <int kRows>
SLUICE_INLINE void AddValues(const float* x, int64_t channels, float* total) {
  for (int64_t c = 0; c < channels; c += kStreamLanes) {
    Fetch(x + c);
    V sum = LoadStream(x + c);
    for (int r = 1; r < kRows; ++r) {
      Fetch(x + r * channels + c);
      sum += LoadStream(x + r * channels + c);
    }
    StoreStream(total + c, LoadStream(total + c) + sum);
  }
}

// off[c] += x - mean, squares[c] += (x - mean)^2 of rows [0, kRows).
template <int kRows>
SLUICE_INLINE void AddDistances(const float* x, int64_t channels, int64_t width,
                                const float* mean, float* off, float* squares) {
  for (int64_t c = 0; c < width; c += kStreamLanes) {
    const V m = LoadStream(mean + c);
    V d = LoadStream(x + c) - m;
    V sum = d, square = d * d;
    for (int r = 1; r < kRows; ++r) {
      d = LoadStream(x + r * channels + c) - m;
      sum += d;
      square += d * d;
    }
    StoreStream(off + c, LoadStream(off + c) + sum);
    StoreStream(squares + c, LoadStream(squares + c) + square);
  }
}

void Moments(const float* x, int64_t rows, int64_t channels, float* mean,
             float* squares) {
  Zero(mean, channels);
  Zero(squares, channels);
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) AddValues<4>(x + r * channels, channels, mean);
  for (; r < rows; ++r) AddValues<1>(x + r * channels, channels, mean);
  const float scale = 1.0f / static_cast<float>(rows);
  for (int64_t c = 0; c < channels; ++c) mean[c] *= scale;
  for (int64_t first = 0; first < channels; first += simd::kMomentsTile) {
    const int64_t left = channels - first;
    const int64_t width = left < simd::kMomentsTile ? left : simd::kMomentsTile;
    float off[simd::kMomentsTile];
    Zero(off, width);
    const float* row = x + first;
    float* const m = mean + first;
    float* const s = squares + first;
    for (r = 0; r + 4 <= rows; r += 4, row += 4 * channels) {
      AddDistances<4>(row, channels, width, m, off, s);
    }
    for (; r < rows; ++r, row += channels) {
      AddDistances<1>(row, channels, width, m, off, s);
    }
    simd::CorrectMoments(width, scale, off, m, s);
  }
}

template <bool kAdd, bool kRelu, bool kPast>
void NormalizeRows(const Block& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t at = r * b.channels;
    for (int64_t c = 0; c < b.channels; c += kGroup) {
      unsigned bits = 0;
      for (int part = 0; part < kGroup; part += kStreamLanes) {
        const int64_t j = c + part;
        Fetch(b.x + at + j);
        if constexpr (kAdd) Fetch(b.addend + at + j);
        V y = (LoadStream(b.x + at + j) - LoadStream(b.mean + j)) *
                  LoadStream(b.factor + j) +
              LoadStream(b.offset + j);
        if constexpr (kAdd) y += LoadStream(b.addend + at + j);
        if constexpr (kRelu) {
          const StreamBits negative = V{} > y;
          bits |= BitsOf(y > V{}) << part;
          y = Masked(y, ~negative);  // a NaN stays
        }
        StoreAs<kPast>(b.y + at + j, y);
      }
      if constexpr (kRelu) b.mask[(at + c) / 8] = static_cast<uint8_t>(bits);
    }
  }
  if constexpr (kPast) FenceStores();
}

template <bool kPast>
void NormalizeAs(const Block& b) {
  if (b.mask == nullptr) {
    b.addend ? NormalizeRows<true, false, kPast>(b)
             : NormalizeRows<false, false, kPast>(b);
  } else {
    b.addend ? NormalizeRows<true, true, kPast>(b)
             : NormalizeRows<false, true, kPast>(b);
  }
}

void Normalize(const Block& b) {
  b.stream ? NormalizeAs<true>(b) : NormalizeAs<false>(b);
}

// The sums over rows [row, row + kRows).
template <int kRows, bool kTwo, bool kMask, bool kKeep, bool kPast>
SLUICE_INLINE void AddGradRows(const GradBlock& b, int64_t row) {
  const int64_t first = row * b.channels;
  for (int64_t c = 0; c < b.channels; c += kGroup) {
    for (int part = 0; part < kGroup; part += kStreamLanes) {
      const int64_t j = c + part;
      V sum = LoadStream(b.sum + j), dot = LoadStream(b.dot + j);
      const V mean = LoadStream(b.mean + j);
      for (int r = 0; r < kRows; ++r) {
        const int64_t at = first + r * b.channels;
        V g = LoadStream(b.dy + at + j);
        // Before g is stored: the arrays lie alike in their pages, which would
        // make this look like a read of what was just written.
        const V distance = LoadStream(b.x + at + j) - mean;
        if constexpr (kTwo) g += LoadStream(b.dy2 + at + j);
        if constexpr (kMask) g = Masked(g, LanesOf(b.mask[(at + c) / 8], part));
        if constexpr (kKeep) StoreAs<kPast>(b.g + at + j, g);
        sum += g;
        dot += g * distance;
        Fetch(b.dy + at + j);
        Fetch(b.x + at + j);
        if constexpr (kTwo) Fetch(b.dy2 + at + j);
      }
      StoreStream(b.sum + j, sum);
      StoreStream(b.dot + j, dot);
    }
  }
}

template <bool kTwo, bool kMask, bool kKeep, bool kPast = false>
void GradSumsOf(const GradBlock& b) {
  Zero(b.sum, b.channels);
  Zero(b.dot, b.channels);
  int64_t r = 0;
  for (; r + 2 <= b.rows; r += 2) {
    AddGradRows<2, kTwo, kMask, kKeep, kPast>(b, r);
  }
  for (; r < b.rows; ++r) AddGradRows<1, kTwo, kMask, kKeep, kPast>(b, r);
  if constexpr (kPast) FenceStores();
}

template <bool kTwo>
void GradSumsKeeping(const GradBlock& b) {
  b.stream ? GradSumsOf<kTwo, true, true, true>(b)
           : GradSumsOf<kTwo, true, true, false>(b);
}

void GradSums(const GradBlock& b) {
  if (b.mask == nullptr) {
    GradSumsOf<false, false, false>(b);
  } else if (b.dy2 != nullptr) {
    GradSumsKeeping<true>(b);
  } else if (b.g != nullptr) {
    GradSumsKeeping<false>(b);
  } else {
    GradSumsOf<false, true, false>(b);
  }
}

template <bool kMask, bool kPast>
void GradRows(const GradBlock& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t at = r * b.channels;
    for (int64_t c = 0; c < b.channels; c += kGroup) {
      for (int part = 0; part < kGroup; part += kStreamLanes) {
        const int64_t j = c + part;
        V g = LoadStream(b.dy + at + j);
        if constexpr (kMask) g = Masked(g, LanesOf(b.mask[(at + c) / 8], part));
        const V distance = LoadStream(b.x + at + j) - LoadStream(b.mean + j);
        StoreAs<kPast>(b.dx + at + j, g * LoadStream(b.factor + j) +
                                          distance * LoadStream(b.slope + j) +
                                          LoadStream(b.shift + j));
      }
    }
  }
  if constexpr (kPast) FenceStores();
}

void Grad(const GradBlock& b) {
  if (b.mask == nullptr) {
    b.stream ? GradRows<false, true>(b) : GradRows<false, false>(b);
  } else {
    b.stream ? GradRows<true, true>(b) : GradRows<true, false>(b);
  }
}

}  // namespace

void AddBatchNorm(simd::SimdKernels& table) noexcept {
  table.batch_norm = {Moments, Normalize, GradSums, Grad};
}

}  // namespace sluice::SLUICE_ISA
