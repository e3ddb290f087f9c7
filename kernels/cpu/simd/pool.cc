// Rows of pooling windows.
#include "kernels/cpu/simd/pool.h"

#include "kernels/cpu/simd/tables.h"
#include "kernels/cpu/simd/vector.h"

namespace sluice::SLUICE_ISA {
namespace {

using simd::PoolRow;

struct Columns {
  int64_t begin, end;
  int32_t first;  // the window's element at the first row and `begin`
};
SLUICE_INLINE Columns ColumnsOf(const PoolRow& row, int64_t o) {
  const int64_t begin = o * row.stride - row.pad;
  const int64_t end = begin + row.window;
  const int64_t cut = begin < 0 ? -begin : 0;
  return {begin + cut, end < row.width ? end : row.width,
          static_cast<int32_t>(row.cut * row.window + cut)};
}

using Places = Vector<int32_t>;

// One for each lane of a float, from and to a byte in memory.
struct Bytes {
  using Type __attribute__((vector_size(kLanes<float>))) = uint8_t;
  using Stored
      __attribute__((vector_size(kLanes<float>), aligned(1), may_alias)) =
          uint8_t;
};
SLUICE_INLINE Places LoadPlaces(const uint8_t* p) {
  const Bytes::Type bytes = *reinterpret_cast<const Bytes::Stored*>(p);
  return __builtin_convertvector(bytes, Places);
}
SLUICE_INLINE void StorePlaces(uint8_t* p, Places places) {
  *reinterpret_cast<Bytes::Stored*>(p) =
      __builtin_convertvector(places, Bytes::Type);
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

// As MaxWindow, and which elements they are.
template <int kVectors>
SLUICE_INLINE void ArgmaxWindow(const PoolRow& row, Columns columns,
                                const float* image, float* y, uint8_t* argmax) {
  const int64_t stride = row.width * row.channels;
  Vector<float> best[kVectors];
  Places place[kVectors];
  const float* first =
      image + row.first_row * stride + columns.begin * row.channels;
  for (int v = 0; v < kVectors; ++v) {
    best[v] = Load(first + v * kLanes<float>);
    place[v] = Broadcast(columns.first);
  }
  int32_t line = columns.first;
  for (int64_t i = row.first_row; i < row.end_row; ++i) {
    const float* x = image + i * stride + columns.begin * row.channels;
    int32_t at = line;
    for (int64_t j = columns.begin; j < columns.end; ++j, x += row.channels) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Vector<float> value = Load(x + v * kLanes<float>);
        const auto larger = value > best[v];
        const auto nan = value != value;
        place[v] = larger ? Broadcast(at) : place[v];
        place[v] = nan ? Broadcast(int32_t{kNoPoolElement}) : place[v];
        best[v] = (larger | nan) ? value : best[v];
      }
      ++at;
    }
    line += static_cast<int32_t>(row.window);
  }
  for (int v = 0; v < kVectors; ++v) {
    Store(y + v * kLanes<float>, best[v]);
    StorePlaces(argmax + v * kLanes<float>, place[v]);
  }
}

SLUICE_INLINE void ArgmaxChannel(const PoolRow& row, Columns columns,
                                 const float* image, float* y,
                                 uint8_t* argmax) {
  const int64_t stride = row.width * row.channels;
  float best = image[row.first_row * stride + columns.begin * row.channels];
  int32_t place = columns.first, line = columns.first;
  for (int64_t i = row.first_row; i < row.end_row; ++i) {
    int32_t at = line;
    for (int64_t j = columns.begin; j < columns.end; ++j, ++at) {
      const float value = image[i * stride + j * row.channels];
      if (value > best) place = at;
      if (value != value) place = kNoPoolElement;
      best = value > best || value != value ? value : best;
    }
    line += static_cast<int32_t>(row.window);
  }
  *y = best;
  *argmax = static_cast<uint8_t>(place);
}

void MaxArgmax(const PoolRow& row, const float* image, float* y,
               uint8_t* argmax) {
  constexpr int kWidth = kLanes<float>;
  for (int64_t o = 0; o < row.windows; ++o) {
    const Columns columns = ColumnsOf(row, o);
    int64_t c = 0;
    for (; c + 4 * kWidth <= row.channels; c += 4 * kWidth) {
      ArgmaxWindow<4>(row, columns, image + c, y + c, argmax + c);
    }
    for (; c + kWidth <= row.channels; c += kWidth) {
      ArgmaxWindow<1>(row, columns, image + c, y + c, argmax + c);
    }
    for (; c < row.channels; ++c) {
      ArgmaxChannel(row, columns, image + c, y + c, argmax + c);
    }
    y += row.channels;
    argmax += row.channels;
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

template <int kVectors>
SLUICE_INLINE void GiveWindow(const PoolRow& row, Columns columns,
                              int64_t begin, int64_t end, const float* dy,
                              const uint8_t* argmax, float* dx) {
  const int64_t stride = row.width * row.channels;
  Vector<float> given[kVectors];
  Places place[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    given[v] = Load(dy + v * kLanes<float>);
    place[v] = LoadPlaces(argmax + v * kLanes<float>);
  }
  for (int64_t i = begin; i < end; ++i) {
    float* to = dx + i * stride + columns.begin * row.channels;
    int32_t at =
        columns.first + static_cast<int32_t>((i - row.first_row) * row.window);
    for (int64_t j = columns.begin; j < columns.end; ++j, to += row.channels) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* const lane = to + v * kLanes<float>;
        const auto here = place[v] == Broadcast(at);
        Store(lane, Load(lane) + (here ? given[v] : Vector<float>{}));
      }
      ++at;
    }
  }
}

void ArgmaxGrad(const PoolRow& row, int64_t begin, int64_t end, const float* dy,
                const uint8_t* argmax, float* dx) {
  constexpr int kWidth = kLanes<float>;
  const int64_t stride = row.width * row.channels;
  begin = begin < row.first_row ? row.first_row : begin;
  end = end < row.end_row ? end : row.end_row;
  for (int64_t o = 0; o < row.windows; ++o) {
    const Columns columns = ColumnsOf(row, o);
    int64_t c = 0;
    for (; c + 4 * kWidth <= row.channels; c += 4 * kWidth) {
      GiveWindow<4>(row, columns, begin, end, dy + c, argmax + c, dx + c);
    }
    for (; c + kWidth <= row.channels; c += kWidth) {
      GiveWindow<1>(row, columns, begin, end, dy + c, argmax + c, dx + c);
    }
    for (; c < row.channels; ++c) {
      if (argmax[c] == kNoPoolElement) continue;
      const int64_t place = argmax[c] - row.cut * row.window;
      const int64_t i = row.first_row + place / row.window;
      const int64_t j = o * row.stride - row.pad + place % row.window;
      // Bytes from elsewhere may be anything.
      if (i >= begin && i < end && j >= columns.begin && j < columns.end) {
        dx[i * stride + j * row.channels + c] += dy[c];
      }
    }
    dy += row.channels;
    argmax += row.channels;
  }
}

}  // namespace

void AddPool(simd::SimdKernels& table) noexcept {
  table.pool = {Max, MaxArgmax, MaxGrad, ArgmaxGrad};
}

}  // namespace sluice::SLUICE_ISA
