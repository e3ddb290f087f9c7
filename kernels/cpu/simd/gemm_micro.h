// Register-tiled matrix product on vectors; see kernels/cpu/gemm/gemm.h for the
// method. A template over the element type, so that gemm.cc instantiates it
// for the instruction set and the test for widths the machine lacks.
#ifndef SLUICE_KERNELS_CPU_SIMD_GEMM_MICRO_H_
#define SLUICE_KERNELS_CPU_SIMD_GEMM_MICRO_H_

#include <cstdint>

#include "kernels/cpu/simd/gemm_tile.h"
#include "kernels/cpu/simd/vector.h"

namespace sluice::SLUICE_ISA {
namespace {

using simd::GemmTile;

// The tile of C that is held in registers: kTileRows rows of kTileVectors
// vectors. It leaves room for a row of B and one broadcast element of A in the
// 16 (SSE2, AVX2) or 32 registers (AVX-512, NEON).
#if defined(__aarch64__)
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileRows = kVectorBytes == 64 ? 12 : 6;
inline constexpr int kTileVectors = 2;
#endif

template <typename T>
inline constexpr int kTileColumns = kTileVectors* kLanes<T>;

// Finishes the register tile: R rows, all of its columns.
template <int R, typename T>
SLUICE_INLINE void StoreTile(const GemmTile<T>& tile,
                             Vector<T> (&acc)[R][kTileVectors], T* c,
                             const T* addend, const T* bias) {
  if (addend != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        acc[r][v] += Load(addend + r * tile.ldc + v * kLanes<T>);
      }
    }
  }
  if (bias != nullptr) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      const Vector<T> row = Load(bias + v * kLanes<T>);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) acc[r][v] += row;
    }
  }
  if (tile.relu) {
    const Vector<T> zero = {};
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        acc[r][v] = zero > acc[r][v] ? zero : acc[r][v];  // keeps NaN
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      Store(c + r * tile.ldc + v * kLanes<T>, acc[r][v]);
    }
  }
}

// Stores the first `columns` columns of a tile only.
template <int R, typename T>
SLUICE_INLINE void StorePart(const GemmTile<T>& tile,
                             Vector<T> (&acc)[R][kTileVectors], T* c,
                             const T* addend, const T* bias, int64_t columns) {
  T rows[R][kTileColumns<T>];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      Store(&rows[r][v * kLanes<T>], acc[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    T* out = c + r * tile.ldc;
    for (int64_t j = 0; j < columns; ++j) {
      T x = rows[r][j];
      if (addend != nullptr) x += addend[r * tile.ldc + j];
      if (bias != nullptr) x += bias[j];
      if (tile.relu) x = T(0) > x ? T(0) : x;
      out[j] = x;
    }
  }
}

// The elements to fetch into L2 at each step of k meanwhile: a large B comes
// from memory, and a panel of it is used up within a few microseconds.
template <typename T>
struct Ahead {
  const T* at = nullptr;
  int64_t step = 0;
};

// R rows by up to kTileColumns columns. b: a row every b_stride elements.
template <int R, bool kAhead, typename T>
void MultiplyTile(const GemmTile<T>& tile, const T* a, const T* b,
                  int64_t b_stride, T* c, const T* bias, int64_t columns,
                  Ahead<T> ahead) {
  const int64_t a_row_stride = tile.a_packed ? 1 : tile.a_row_stride;
  const int64_t a_column_stride =
      tile.a_packed ? kTileRows : tile.a_column_stride;
  Vector<T> acc[R][kTileVectors] = {};
#pragma GCC unroll 2
  for (int64_t p = 0; p < tile.k; ++p) {
    Vector<T> row[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) row[v] = Load(b + v * kLanes<T>);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vector<T> x = Broadcast(a[r * a_row_stride]);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) acc[r][v] += x * row[v];
    }
    a += a_column_stride;
    b += b_stride;
    if constexpr (kAhead) {
      __builtin_prefetch(ahead.at, 0, 2);
      ahead.at += ahead.step;
    }
  }
  const T* addend =
      tile.addend == nullptr ? nullptr : tile.addend + (c - tile.c);
  if (columns == kTileColumns<T>) {
    StoreTile<R>(tile, acc, c, addend, bias);
  } else {
    StorePart<R>(tile, acc, c, addend, bias, columns);
  }
}

// MultiplyTile for 1 .. kTileRows rows, by index.
template <bool kAhead, typename T>
struct TileFns {
  using Fn = void (*)(const GemmTile<T>&, const T* a, const T* b,
                      int64_t b_stride, T* c, const T* bias, int64_t columns,
                      Ahead<T> ahead);
  Fn of_rows[kTileRows + 1] = {};

  template <int R = 1>
  constexpr void Fill() {
    of_rows[R] = MultiplyTile<R, kAhead, T>;
    if constexpr (R < kTileRows) Fill<R + 1>();
  }
  constexpr TileFns() { Fill(); }
};

// Rows of A are spread evenly over the register tiles, since one of one row
// takes nearly as long as one of four.
struct TileRows {
  explicit TileRows(int64_t m)
      : tiles((m + kTileRows - 1) / kTileRows),
        rows(tiles > 0 ? m / tiles : 0),
        longer(tiles > 0 ? m % tiles : 0) {}
  int64_t of(int64_t tile) const { return rows + (tile < longer ? 1 : 0); }
  int64_t tiles, rows, longer;
};

// Multiplies all of A by one panel of B. next: `count` elements to fetch
// meanwhile, or null.
template <typename T>
void MultiplyPanel(const GemmTile<T>& tile, const T* b, int64_t b_stride, T* c,
                   const T* bias, int64_t columns, const T* next,
                   int64_t count) {
  static constexpr TileFns<false, T> kFns;
  static constexpr TileFns<true, T> kFetching;
  const auto& fns = next == nullptr ? kFns.of_rows : kFetching.of_rows;
  const TileRows spread(tile.m);
  // Each register tile fetches its share.
  const int64_t steps = spread.tiles * tile.k;
  const int64_t step = (count + steps - 1) / steps;
  int64_t row = 0;
  for (int64_t i = 0; i < spread.tiles; ++i) {
    const int64_t rows = spread.of(i);
    Ahead<T> ahead;
    if (next != nullptr) ahead = {next + i * step * tile.k, step};
    fns[rows](tile, tile.a + (tile.a_packed ? i : row) * tile.a_row_stride, b,
              b_stride, c + row * tile.ldc, bias, columns, ahead);
    row += rows;
  }
}

template <typename T>
void PackB(const T* b, int64_t row_stride, int64_t column_stride, int64_t k,
           int64_t n, T* panels, int64_t panel_stride);

template <typename T>
void Multiply(const GemmTile<T>& tile) {
  // A last panel of unpacked B that is not full, completed with zeros.
  alignas(64) T last[simd::kMaxTileK * kTileColumns<T>];
  for (int64_t j = 0; j < tile.n; j += kTileColumns<T>) {
    const int64_t columns =
        tile.n - j < kTileColumns<T> ? tile.n - j : kTileColumns<T>;
    const T* b =
        tile.b + (tile.b_packed ? j / kTileColumns<T> * tile.b_stride : j);
    int64_t b_stride = tile.b_packed ? kTileColumns<T> : tile.b_stride;
    if (!tile.b_packed && columns < kTileColumns<T>) {
      PackB(b, tile.b_stride, 1, tile.k, columns, last, 0);
      b = last;
      b_stride = kTileColumns<T>;
    }
    const T* bias = tile.bias == nullptr ? nullptr : tile.bias + j;
    const T* next = nullptr;
    int64_t count = 0;
    if (tile.next_b != nullptr) {
      next = j + kTileColumns<T> < tile.n ? b + tile.b_stride : tile.next_b;
      count = kTileColumns<T> * tile.k;
    } else if (tile.fetch != nullptr) {
      next = tile.fetch + tile.fetch_count * j / tile.n;
      count = tile.fetch_count * columns / tile.n;
    } else if (j == 0 && !tile.a_packed && tile.a_row_stride == tile.k) {
      // Rows one register tile on; later panels find them in cache.
      next = tile.a + kTileRows * tile.k;
      count = tile.m * tile.k;
    }
    MultiplyPanel(tile, b, b_stride, tile.c + j, bias, columns, next, count);
  }
}

// Packs one panel, of `width` columns.
template <typename T>
void PackPanel(const T* in, int64_t row_stride, int64_t column_stride,
               int64_t k, int64_t width, T* out) {
  constexpr int kWidth = kTileColumns<T>;
  int64_t p = 0;
  if (width == kWidth) {
    for (; p < k; ++p, out += kWidth) {
      for (int64_t q = 0; q < kWidth; ++q) {
        out[q] = in[p * row_stride + q * column_stride];
      }
    }
    return;
  }
  if (column_stride == 1) {
    // Whole vectors are read where they end before the matrix does; what they
    // take from the next row is replaced by zeros.
    const int64_t end = (k - 1) * row_stride + width;
    T inside[kWidth];
    for (int q = 0; q < kWidth; ++q) inside[q] = q < width ? T(1) : T(0);
    const Vector<T> zero = {};
    for (; p < k && p * row_stride + kWidth <= end; ++p, out += kWidth) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        const int lane = v * kLanes<T>;
        Store(out + lane, Load(inside + lane) != zero
                              ? Load(in + p * row_stride + lane)
                              : zero);
      }
    }
  }
  for (; p < k; ++p, out += kWidth) {
    for (int64_t q = 0; q < kWidth; ++q) {
      out[q] = q < width ? in[p * row_stride + q * column_stride] : T(0);
    }
  }
}

// Columns of B that are packed together, so that rows of it are read in runs
// longer than a cache line.
inline constexpr int kPackPanels = 4;

template <typename T>
void PackB(const T* b, int64_t row_stride, int64_t column_stride, int64_t k,
           int64_t n, T* panels, int64_t panel_stride) {
  constexpr int kWidth = kTileColumns<T>;
  int64_t j = 0;
  if (column_stride == 1) {
    for (; j + kPackPanels * kWidth <= n; j += kPackPanels * kWidth) {
      for (int64_t p = 0; p < k; ++p) {
        const T* row = b + p * row_stride + j;
        T* out = panels + p * kWidth;
#pragma GCC unroll 4
        for (int panel = 0; panel < kPackPanels; ++panel) {
#pragma GCC unroll 4
          for (int v = 0; v < kTileVectors; ++v) {
            Store(out + v * kLanes<T>, Load(row + v * kLanes<T>));
          }
          row += kWidth;
          out += panel_stride;
        }
      }
      panels += kPackPanels * panel_stride;
    }
  }
  for (; j < n; j += kWidth, panels += panel_stride) {
    const int64_t width = n - j < kWidth ? n - j : kWidth;
    PackPanel(b + j * column_stride, row_stride, column_stride, k, width,
              panels);
  }
}

// Tiles are written by whole vectors; what these write too much is overwritten
// by the next step of k or lies in the room between tiles.
template <typename T>
void PackA(const T* a, int64_t stride, int64_t m, int64_t k, T* tiles,
           int64_t tile_stride) {
  constexpr int kVectors = (kTileRows + kLanes<T> - 1) / kLanes<T>;
  static_assert(kVectors * kLanes<T> - kTileRows <= simd::kTilePadding);
  const TileRows spread(m);
  for (int64_t p = 0; p < k; ++p, a += stride, tiles += kTileRows) {
    const T* in = a;
    T* out = tiles;
    // The last ones stop short of reading past the row.
    for (int64_t i = 0; i < spread.tiles; ++i, out += tile_stride) {
      const int64_t rows = spread.of(i);
      if (in + kVectors * kLanes<T> <= a + m) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          Store(out + v * kLanes<T>, Load(in + v * kLanes<T>));
        }
      } else {
        for (int64_t r = 0; r < rows; ++r) out[r] = in[r];
      }
      in += rows;
    }
  }
}

}  // namespace
}  // namespace sluice::SLUICE_ISA

#endif  // SLUICE_KERNELS_CPU_SIMD_GEMM_MICRO_H_
