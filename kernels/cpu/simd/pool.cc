// Rows of pooling windows.
#include "kernels/cpu/simd/pool.h"

#include "kernels/cpu/simd/tables.h"
#include "kernels/cpu/simd/vector.h"

namespace sluice::SLUICE_ISA {
namespace {

using simd::PoolRow;

struct Columns {
  int64_t begin, end;
};
SLUICE_INLINE Columns ColumnsOf(const PoolRow& row, int64_t o) {
  const int64_t begin = o * row.stride - row.pad;
  const int64_t end = begin + row.window;
  return {begin < 0 ? 0 : begin, end < row.width ? end : row.width};
}

// kVectors of channels of one window. The window holds an element at least.
template <int kVectors>
SLUICE_INLINE void MaxWindow(const PoolRow& row, Columns columns,
                             const float* image, float* y) {
  const int64_t stride = row.width * row.channels;
  Vector<float> best[kVectors];
  const float* first =
      image + row.first_row * stride + columns.begin * row.channels;
  for (int v = 0; v < kVectors; ++v) best[v] = Load(first + v * kLanes<float>);
  for (int64_t i = row.first_row; i < row.end_row; ++i) {
    const float* x = image + i * stride + columns.begin * row.channels;
    for (int64_t j = columns.begin; j < columns.end; ++j, x += row.channels) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Vector<float> value = Load(x + v * kLanes<float>);
        best[v] = ((value > best[v]) | (value != value)) ? value : best[v];
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) Store(y + v * kLanes<float>, best[v]);
}

SLUICE_INLINE void MaxChannel(const PoolRow& row, Columns columns,
                              const float* image, float* y) {
  const int64_t stride = row.width * row.channels;
  float best = image[row.first_row * stride + columns.begin * row.channels];
  for (int64_t i = row.first_row; i < row.end_row; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      const float value = image[i * stride + j * row.channels];
      best = value > best || value != value ? value : best;
    }
  }
  *y = best;
}

void Max(const PoolRow& row, const float* image, float* y) {
  constexpr int kWidth = kLanes<float>;
  for (int64_t o = 0; o < row.windows; ++o, y += row.channels) {
    const Columns columns = ColumnsOf(row, o);
    int64_t c = 0;
    for (; c + 4 * kWidth <= row.channels; c += 4 * kWidth) {
      MaxWindow<4>(row, columns, image + c, y + c);
    }
    for (; c + kWidth <= row.channels; c += kWidth) {
      MaxWindow<1>(row, columns, image + c, y + c);
    }
    for (; c < row.channels; ++c) MaxChannel(row, columns, image + c, y + c);
  }
}

// `open`: what of dy has not been given away yet.
template <int kVectors>
SLUICE_INLINE void GradWindow(const PoolRow& row, Columns columns,
                              int64_t begin, int64_t end, const float* x,
                              const float* y, const float* dy, float* dx) {
  const int64_t stride = row.width * row.channels;
  Vector<float> best[kVectors], open[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    best[v] = Load(y + v * kLanes<float>);
    open[v] = Load(dy + v * kLanes<float>);
  }
  for (int64_t i = row.first_row; i < row.end_row; ++i) {
    int64_t at = i * stride + columns.begin * row.channels;
    const bool own = i >= begin && i < end;
    for (int64_t j = columns.begin; j < columns.end; ++j, at += row.channels) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto here = Load(x + at + v * kLanes<float>) >= best[v];
        if (own) {
          float* to = dx + at + v * kLanes<float>;
          Store(to, Load(to) + (here ? open[v] : Vector<float>{}));
        }
        open[v] = here ? Vector<float>{} : open[v];
      }
    }
  }
}

SLUICE_INLINE void GradChannel(const PoolRow& row, Columns columns,
                               int64_t begin, int64_t end, const float* x,
                               const float* y, const float* dy, float* dx) {
  const int64_t stride = row.width * row.channels;
  for (int64_t i = row.first_row; i < row.end_row; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      const int64_t at = i * stride + j * row.channels;
      if (!(x[at] >= *y)) continue;
      if (i >= begin && i < end) dx[at] += *dy;
      return;
    }
  }
}

void MaxGrad(const PoolRow& row, int64_t begin, int64_t end, const float* x,
             const float* y, const float* dy, float* dx) {
  constexpr int kWidth = kLanes<float>;
  for (int64_t o = 0; o < row.windows; ++o) {
    const Columns columns = ColumnsOf(row, o);
    int64_t c = 0;
    for (; c + 4 * kWidth <= row.channels; c += 4 * kWidth) {
      GradWindow<4>(row, columns, begin, end, x + c, y + c, dy + c, dx + c);
    }
    for (; c + kWidth <= row.channels; c += kWidth) {
      GradWindow<1>(row, columns, begin, end, x + c, y + c, dy + c, dx + c);
    }
    for (; c < row.channels; ++c) {
      GradChannel(row, columns, begin, end, x + c, y + c, dy + c, dx + c);
    }
    y += row.channels;
    dy += row.channels;
  }
}

}  // namespace

void AddPool(simd::SimdKernels& table) noexcept {
  table.pool = {Max, MaxGrad};
}

}  // namespace sluice::SLUICE_ISA
