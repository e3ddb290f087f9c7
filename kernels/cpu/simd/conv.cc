// Register tiles of convolution; see conv.h.
#include "kernels/cpu/simd/conv.h"

#include "kernels/cpu/simd/gemm_micro.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

using simd::ConvFilterGrad;
using simd::ConvForward;
using simd::ConvGrid;
using simd::ConvRun;
using simd::kConvColumns;
using simd::kConvSteps;

// Pixels of a tile: fewer than rows of a matrix tile where registers would
// allow more, since each pixel needs a pointer of its own.
inline constexpr int kPixels = kTileRows > 8 ? 8 : kTileRows;
inline constexpr int kWidth = kTileColumns<float>;

// Adds one row of a tile, `channels` of its columns.
SLUICE_INLINE void AddRow(Vector<float> (&row)[kTileVectors], float* out,
                          int64_t channels) {
  if (channels >= kWidth) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      float* p = out + v * kLanes<float>;
      Store(p, Load(p) + row[v]);
    }
    return;
  }
  float values[kWidth];
  for (int v = 0; v < kTileVectors; ++v) {
    Store(values + v * kLanes<float>, row[v]);
  }
  for (int64_t j = 0; j < channels; ++j) {
    out[j] += values[j];
  }
}

// What follows the sums of a whole panel. All addends are read before a pixel
// is written, since a tile may have its last pixel several times.
SLUICE_INLINE void Finish(const ConvForward& conv,
                          Vector<float> (&acc)[kPixels][kTileVectors],
                          float* const* y, int64_t channel) {
#pragma GCC unroll 4
  for (int v = 0; v < kTileVectors; ++v) {
    const int64_t lane = channel + v * kLanes<float>;
    if (conv.bias != nullptr) {
      const Vector<float> bias = Load(conv.bias + lane);
#pragma GCC unroll 16
      for (int r = 0; r < kPixels; ++r) acc[r][v] += bias;
    }
    if (conv.addend != nullptr) {
#pragma GCC unroll 16
      for (int r = 0; r < kPixels; ++r) {
        acc[r][v] += Load(conv.addend + (y[r] - conv.y) + lane);
      }
    }
    if (conv.relu) {
      const Vector<float> zero = {};
#pragma GCC unroll 16
      for (int r = 0; r < kPixels; ++r) {
        acc[r][v] = zero > acc[r][v] ? zero : acc[r][v];  // keeps NaN
      }
    }
  }
}

// The same for the first `channels` of a panel, and stores them.
void FinishPart(const ConvForward& conv,
                const Vector<float> (&acc)[kPixels][kTileVectors],
                float* const* y, int64_t channel, int64_t channels) {
  float values[kPixels][kWidth];
  for (int r = 0; r < kPixels; ++r) {
    for (int v = 0; v < kTileVectors; ++v) {
      Store(values[r] + v * kLanes<float>, acc[r][v]);
    }
    for (int64_t j = 0; j < channels; ++j) {
      float x = values[r][j];
      if (conv.bias != nullptr) x += conv.bias[channel + j];
      if (conv.addend != nullptr) {
        x += conv.addend[y[r] - conv.y + channel + j];
      }
      values[r][j] = conv.relu && 0.0f > x ? 0.0f : x;
    }
  }
  for (int r = 0; r < kPixels; ++r) {
    for (int64_t j = 0; j < channels; ++j) y[r][channel + j] = values[r][j];
  }
}

// Adds the sums of `ended`, [kPixels, kWidth].
SLUICE_INLINE void AddSums(const float* ended,
                           Vector<float> (&acc)[kPixels][kTileVectors]) {
#pragma GCC unroll 16
  for (int r = 0; r < kPixels; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      acc[r][v] += Load(ended + r * kWidth + v * kLanes<float>);
    }
  }
}

// Leaves the sums in `ended`, and begins anew.
SLUICE_INLINE void EndSums(Vector<float> (&acc)[kPixels][kTileVectors],
                           float* ended) {
#pragma GCC unroll 16
  for (int r = 0; r < kPixels; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      Store(ended + r * kWidth + v * kLanes<float>, acc[r][v]);
      acc[r][v] = Vector<float>{};
    }
  }
}

// kPixels pixels by one panel of channels. `ended`, kPixels * kWidth floats, is
// the caller's, so that sums which wait there take no registers from the loop.
[[gnu::noinline]] void ForwardTile(const ConvForward& conv,
                                   const float* const* pixels,
                                   const float* filter, float* const* y,
                                   int64_t panel, int64_t channels,
                                   float* ended) {
  Vector<float> acc[kPixels][kTileVectors] = {};
  int64_t steps = 0;     // in acc
  bool waiting = false;  // there are sums in `ended`
  for (int64_t i = 0; i < conv.grid.num_runs; ++i) {
    const ConvRun run = conv.grid.runs[i];
    const float* x[kPixels];
#pragma GCC unroll 16
    for (int r = 0; r < kPixels; ++r) x[r] = pixels[r] + run.offset;
    for (int64_t p = 0; p < run.length;) {
      const int64_t end =
          run.length - p < kConvSteps ? run.length : p + kConvSteps;
      if (steps + end - p > kConvSteps) {
        if (waiting) AddSums(ended, acc);
        EndSums(acc, ended);
        waiting = true;
        steps = 0;
      }
      steps += end - p;
      for (; p < end; ++p) {
        Vector<float> row[kTileVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) {
          row[v] = Load(filter + v * kLanes<float>);
        }
#pragma GCC unroll 16
        for (int r = 0; r < kPixels; ++r) {
          const Vector<float> value = Broadcast(x[r][p]);
#pragma GCC unroll 4
          for (int v = 0; v < kTileVectors; ++v) acc[r][v] += value * row[v];
        }
        filter += kWidth;
      }
    }
  }
  if (waiting) AddSums(ended, acc);
  if (channels < kWidth) {
    FinishPart(conv, acc, y, panel * kWidth, channels);
    return;
  }
  Finish(conv, acc, y, panel * kWidth);
#pragma GCC unroll 16
  for (int r = 0; r < kPixels; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      Store(y[r] + panel * kWidth + v * kLanes<float>, acc[r][v]);
    }
  }
}

void Forward(const ConvForward& conv) {
  const ConvGrid& grid = conv.grid;
  const int64_t count = grid.rows * grid.columns;
  alignas(64) float ended[kPixels * kWidth];
  // Panels outside: one stays in cache while the image passes by.
  for (int64_t panel = 0; panel * kWidth < conv.channels; ++panel) {
    const float* filter = conv.filter + panel * conv.k * kWidth;
    const float* pixels[kPixels];
    float* y[kPixels];
    int64_t row = 0, column = 0;
    for (int64_t first = 0; first < count; first += kPixels) {
      for (int r = 0; r < kPixels; ++r) {
        // A last tile that is not full computes its last pixel repeatedly.
        pixels[r] = grid.image + row * grid.row_step + column * grid.pixel_step;
        y[r] = conv.y + row * conv.y_row_step + column * conv.y_pixel_step;
        if (first + r + 1 < count && ++column == grid.columns) {
          column = 0;
          ++row;
        }
      }
      ForwardTile(conv, pixels, filter, y, panel,
                  conv.channels - panel * kWidth, ended);
    }
  }
}

// R rows of dfilter by one panel of channels, summed over the grid.
template <int R>
void FilterTile(const ConvGrid& grid, const float* image, const float* dy,
                float* dfilter, int64_t stride, int64_t channels) {
  Vector<float> acc[R][kTileVectors] = {};
  const int64_t pixel_step = grid.pixel_step;
  for (int64_t row = 0; row < grid.rows; ++row) {
    const float* x = image + row * grid.row_step;
    for (int64_t q = 0; q < grid.columns; ++q) {
      Vector<float> g[kTileVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        g[v] = Load(dy + v * kLanes<float>);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vector<float> value = Broadcast(x[r]);
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) acc[r][v] += value * g[v];
      }
      x += pixel_step;
      dy += kWidth;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    AddRow(acc[r], dfilter + r * stride, channels);
  }
}

using FilterTileFn = void (*)(const ConvGrid& grid, const float* image,
                              const float* dy, float* dfilter, int64_t stride,
                              int64_t channels);
struct FilterTiles {
  FilterTileFn of_rows[kTileRows + 1] = {};

  template <int R = 1>
  constexpr void Fill() {
    of_rows[R] = FilterTile<R>;
    if constexpr (R < kTileRows) Fill<R + 1>();
  }
  constexpr FilterTiles() { Fill(); }
};

// One panel of dy, the pixels close together: those of an image are often a
// power of two apart, where caches hold few of them.
void PackPixels(const float* dy, int64_t step, int64_t count, int64_t channels,
                float* panel) {
  for (int64_t p = 0; p < count; ++p, dy += step, panel += kWidth) {
    if (channels >= kWidth) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        Store(panel + v * kLanes<float>, Load(dy + v * kLanes<float>));
      }
    } else {
      for (int64_t j = 0; j < kWidth; ++j) {
        panel[j] = j < channels ? dy[j] : 0.0f;
      }
    }
  }
}

// All rows of dfilter by one panel of channels.
void FilterPanel(const ConvFilterGrad& conv, const ConvGrid& grid,
                 float* dfilter, int64_t channels) {
  static constexpr FilterTiles kTiles;
  for (int64_t i = 0; i < grid.num_runs; ++i) {
    const ConvRun run = grid.runs[i];
    for (int64_t p = 0; p < run.length; p += kTileRows) {
      const int64_t rows =
          run.length - p < kTileRows ? run.length - p : kTileRows;
      kTiles.of_rows[rows](grid, grid.image + run.offset + p, conv.scratch,
                           dfilter + p * conv.dfilter_stride,
                           conv.dfilter_stride, channels);
    }
    dfilter += run.length * conv.dfilter_stride;
  }
}

void FilterGrad(const ConvFilterGrad& conv) {
  ConvGrid grid = conv.grid;  // a block of rows, or a part of one row
  for (int64_t row = 0; row < conv.grid.rows; row += conv.block_rows) {
    const int64_t rows = conv.grid.rows - row;
    grid.rows = rows < conv.block_rows ? rows : conv.block_rows;
    for (int64_t q = 0; q < conv.grid.columns; q += kConvColumns) {
      const int64_t columns = conv.grid.columns - q;
      grid.columns = columns < kConvColumns ? columns : kConvColumns;
      grid.image = conv.grid.image + row * grid.row_step + q * grid.pixel_step;
      const float* dy =
          conv.dy + (row * conv.grid.columns + q) * conv.dy_pixel_step;
      for (int64_t c = 0; c < conv.channels; c += kWidth) {
        PackPixels(dy + c, conv.dy_pixel_step, grid.rows * grid.columns,
                   conv.channels - c, conv.scratch);
        FilterPanel(conv, grid, conv.dfilter + c, conv.channels - c);
      }
    }
  }
}

}  // namespace

void AddConv(simd::SimdKernels& table) noexcept {
  table.conv = {kWidth, Forward, FilterGrad};
}

}  // namespace sluice::SLUICE_ISA
