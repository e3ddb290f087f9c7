#include "kernels/cpu/gemm/gemm.h"

#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/semantics/compensated_sum.h"
#include "engine/threads.h"
#include "kernels/cpu/gemm/gemm_cut.h"
#include "kernels/cpu/simd/gemm_tile.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice {
namespace {

using simd::GemmKernels;
using simd::GemmTile;
using simd::kMaxTileK;

// Columns of B that one call packs.
constexpr int64_t kPackColumns = 128;
// Columns of C from which packing a transposed A pays, and where its rows are a
// multiple of 4 KiB apart.
constexpr int64_t kPackAColumns = 192;
constexpr int64_t kPackAColumnsSameSets = 96;

// Stack of a task for a block of A: rows from a reader, or a transposed A in
// register tiles. The padding keeps rows of it from falling on the same cache
// sets.
constexpr int64_t kBlockStride = kMaxTileK + 16;
// Rows of a transposed A that are read at a time.
constexpr int64_t kReadRows = 16;

// Packs rows [k0, k0 + depth) and columns [j0, j0 + columns) of op(B), blocks
// of kMaxTileK rows one after another, each in panels.
template <typename T>
void PackBlock(const Gemm<T>& g, int64_t k0, int64_t depth, int64_t j0,
               int64_t columns, T* panels, int64_t panel_stride) {
  const GemmKernels<T>& kernels = TileKernels<T>();
  if (g.read_b.read == nullptr) {
    const T* b = g.transpose_b ? g.b + j0 * g.ldb + k0 : g.b + k0 * g.ldb + j0;
    kernels.pack(b, g.transpose_b ? 1 : g.ldb, g.transpose_b ? g.ldb : 1, depth,
                 columns, panels, panel_stride);
    return;
  }
  alignas(64) T block[kMaxTileK * kPackColumns];
  if (g.transpose_b) {
    for (int64_t j = 0; j < columns; ++j) {
      g.read_b.read(g.read_b.self, j0 + j, k0, depth, block + j * depth);
    }
    kernels.pack(block, 1, depth, depth, columns, panels, panel_stride);
  } else {
    for (int64_t p = 0; p < depth; ++p) {
      g.read_b.read(g.read_b.self, k0 + p, j0, columns, block + p * columns);
    }
    kernels.pack(block, columns, 1, depth, columns, panels, panel_stride);
  }
}

// A part of C and the k to sum over, of a sum that began at first_k.
struct Part {
  int64_t row = 0, rows = 0;
  int64_t column = 0, columns = 0;
  int64_t k = 0, depth = 0;
  int64_t first_k = 0;
};

// Packs part.columns and part.depth of op(B); parallel where there is much.
template <typename T>
void PackPart(const Gemm<T>& g, const Part& part, T* packed) {
  const int64_t width = TileKernels<T>().columns;
  const int64_t padded = RoundUp(part.columns, width);
  const int64_t column_items = CeilDiv(part.columns, kPackColumns);
  const int64_t items = column_items * CeilDiv(part.depth, kMaxTileK);
  ParallelFor(items, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t p = item / column_items * kMaxTileK;
      const int64_t j = item % column_items * kPackColumns;
      const int64_t depth = std::min(kMaxTileK, part.depth - p);
      PackBlock(g, part.k + p, depth, part.column + j,
                std::min(kPackColumns, part.columns - j),
                packed + p * padded + j * depth, width * depth);
    }
  });
}

// Packs rows [row, row + m) and columns [k, k + depth) of op(A).
template <typename T>
void PackTransposedA(const Gemm<T>& g, int64_t row, int64_t m, int64_t k,
                     int64_t depth, T* tiles, int64_t tile_stride) {
  const GemmKernels<T>& kernels = TileKernels<T>();
  if (g.read_a.read == nullptr) {
    kernels.pack_a(g.a + k * g.lda + row, g.lda, m, depth, tiles, tile_stride);
    return;
  }
  alignas(64) T read[kReadRows * kMaxTaskRows];
  for (int64_t p = 0; p < depth; p += kReadRows) {
    const int64_t count = std::min(kReadRows, depth - p);
    for (int64_t i = 0; i < count; ++i) {
      g.read_a.read(g.read_a.self, k + p + i, row, m, read + i * kMaxTaskRows);
    }
    kernels.pack_a(read, kMaxTaskRows, m, count, tiles + p * kernels.rows,
                   tile_stride);
  }
}

// Each step of k of an A stored [k,m] is in another cache line. Reading them in
// place is good enough unless they are read for many columns, or fall on the
// same cache sets.
template <typename T>
bool RepaysPackingA(int64_t columns, int64_t stride) {
  const bool same_sets = stride * static_cast<int64_t>(sizeof(T)) % 4096 == 0;
  return columns >= (same_sets ? kPackAColumnsSameSets : kPackAColumns);
}

// Points tile.a at rows of op(A), copied into `block` if it is not stored or
// badly laid out.
template <typename T>
void PlaceA(const Gemm<T>& g, int64_t row, int64_t k, GemmTile<T>& tile,
            T* block) {
  const int64_t m = tile.m;
  const int64_t depth = tile.k;
  if (g.read_a.read != nullptr && !g.transpose_a) {
    for (int64_t i = 0; i < m; ++i) {
      g.read_a.read(g.read_a.self, row + i, k, depth, block + i * kBlockStride);
    }
    tile.a = block;
    tile.a_row_stride = kBlockStride;
    tile.a_column_stride = 1;
  } else if (!g.transpose_a) {
    tile.a = g.a + row * g.lda + k;
    tile.a_row_stride = g.lda;
    tile.a_column_stride = 1;
  } else if (g.read_a.read == nullptr && !RepaysPackingA<T>(tile.n, g.lda)) {
    tile.a = g.a + k * g.lda + row;
    tile.a_row_stride = 1;
    tile.a_column_stride = g.lda;
  } else {
    const int64_t rows = TileKernels<T>().rows;
    tile.a = block;
    tile.a_packed = true;
    tile.a_row_stride = rows * depth + simd::kTilePadding;
    PackTransposedA(g, row, m, k, depth, block, tile.a_row_stride);
  }
}

// op(B) for the k of a part and `columns` columns from `column` on, packed.
template <typename T>
struct Panels {
  const T* data = nullptr;  // null: B in place
  int64_t column = 0;
  int64_t columns = 0;
};

// Those for the k that `part` begins with: of packed_b where B came packed,
// `packed` where the cut says so.
template <typename T>
Panels<T> PanelsOf(const Gemm<T>& g, const GemmCut& cut, const Part& part,
                   const T* packed) {
  if (g.packed_b == nullptr) {
    return {cut.pack_b ? packed : nullptr, part.column, part.columns};
  }
  return {g.packed_b + part.k * RoundUp(g.n, TileKernels<T>().columns), 0, g.n};
}

// Elements of A or B that are wanted next.
template <typename T>
struct Wanted {
  const T* data = nullptr;
  int64_t count = 0;
};

// Computes one part of C: block after block of k.
template <typename T>
void MultiplyPart(const Gemm<T>& g, const Part& part, const Panels<T>& b,
                  const Wanted<T>& after = {}) {
  const GemmKernels<T>& kernels = TileKernels<T>();
  const int64_t padded = RoundUp(b.columns, kernels.columns);
  const bool far =
      padded * part.depth * static_cast<int64_t>(sizeof(T)) >= simd::kFarBytes;
  alignas(64) T block[kMaxTaskRows * kBlockStride];
  for (int64_t p = 0; p < part.depth; p += kMaxTileK) {
    const int64_t k = part.k + p;
    const bool last = k + kMaxTileK >= g.k;
    GemmTile<T> tile;
    tile.m = part.rows;
    tile.n = part.columns;
    tile.k = std::min(kMaxTileK, part.depth - p);
    tile.c = g.c + part.row * g.ldc + part.column;
    tile.ldc = g.ldc;
    const T* addend = k > part.first_k ? g.c : g.addend;
    if (addend != nullptr) tile.addend = addend + (tile.c - g.c);
    tile.relu = g.relu && last;
    tile.bias = g.bias != nullptr && last ? g.bias + part.column : nullptr;
    tile.fetch = after.data;
    tile.fetch_count = after.count;
    PlaceA(g, part.row, k, tile, block);
    if (b.data != nullptr) {
      tile.b = b.data + p * padded + (part.column - b.column) * tile.k;
      tile.b_packed = true;
      tile.b_stride = kernels.columns * tile.k;
      if (far) {
        // After the last block: whatever panel, since that is cheap.
        const int64_t next = p + kMaxTileK < part.depth ? p + kMaxTileK : p;
        tile.next_b =
            b.data + next * padded +
            (part.column - b.column) * std::min(kMaxTileK, part.depth - next);
      }
    } else {
      tile.b = g.b + k * g.ldb + part.column;
      tile.b_stride = g.ldb;
    }
    kernels.multiply(tile);
  }
}

// All of C from k >= begin, tasks side by side.
template <typename T>
void RunTiled(const Gemm<T>& g, const GemmCut& cut, int64_t begin, T* packed) {
  for (int64_t j = 0; j < g.n; j += cut.columns) {
    for (int64_t k = begin; k < g.k; k += cut.depth) {
      Part shared;
      shared.first_k = begin;
      shared.column = j;
      shared.columns = std::min(cut.columns, g.n - j);
      shared.k = k;
      shared.depth = std::min(cut.depth, g.k - k);
      if (cut.pack_b) PackPart(g, shared, packed);
      const Panels<T> panels = PanelsOf(g, cut, shared, packed);
      const int64_t column_tasks = CeilDiv(shared.columns, cut.task_columns);
      const int64_t tasks = column_tasks * CeilDiv(g.m, cut.task_rows);
      ParallelFor(tasks, 1, [&](int64_t first, int64_t last) {
        for (int64_t task = first; task < last; ++task) {
          Part part = shared;
          part.row = task / column_tasks * cut.task_rows;
          part.rows = std::min(cut.task_rows, g.m - part.row);
          const int64_t offset = task % column_tasks * cut.task_columns;
          part.column = j + offset;
          part.columns = std::min(cut.task_columns, shared.columns - offset);
          MultiplyPart(g, part, panels);
        }
      });
    }
  }
}

// What the block of k from `k` on takes from the operand with the longer rows,
// where these are stored one after another: all of it comes from memory, once.
template <typename T>
Wanted<T> WantedAt(const Gemm<T>& g, int64_t k, int64_t end) {
  const int64_t depth = std::min(kMaxTileK, end - k);
  if (depth <= 0 || !g.transpose_a || g.transpose_b) return {};
  const bool a = g.m > g.n;
  const int64_t row = a ? g.lda : g.ldb;
  const bool stored = a ? g.read_a.read == nullptr && g.lda == g.m
                        : g.read_b.read == nullptr && g.ldb == g.n;
  if (!stored) return {};
  return {(a ? g.a : g.b) + k * row, depth * row};
}

// The product alone, into a partial C.
template <typename T>
Gemm<T> PartialOf(Gemm<T> g, T* partial) {
  g.c = partial;
  g.ldc = g.n;
  g.addend = nullptr;
  g.bias = nullptr;
  g.relu = false;
  return g;
}

// The slice of k from `begin` on into its own partial C.
template <typename T>
void RunSlice(const Gemm<T>& g, const GemmCut& cut, int64_t begin, T* partial,
              T* packed) {
  const Gemm<T> own = PartialOf(g, partial);
  const int64_t end = std::min(g.k, begin + cut.slice_depth);
  Part part;
  part.columns = g.n;
  part.first_k = begin;
  for (int64_t k = begin; k < end; k += kMaxTileK) {
    part.k = k;
    part.depth = std::min(kMaxTileK, end - k);
    if (cut.pack_b) PackPart(g, part, packed);
    const Panels<T> panels = PanelsOf(g, cut, part, packed);
    const Wanted<T> next = WantedAt(g, k + kMaxTileK, end);
    for (int64_t i = 0; i < g.m; i += cut.task_rows) {
      part.row = i;
      part.rows = std::min(cut.task_rows, g.m - i);
      // Each call fetches its share.
      MultiplyPart<T>(
          own, part, panels,
          {next.data == nullptr ? nullptr : next.data + next.count * i / g.m,
           next.count * part.rows / g.m});
    }
  }
}

// The slices of k from `begin` on, which `partials` has room for. Returns how
// many.
template <typename T>
int64_t RunSlices(const Gemm<T>& g, const GemmCut& cut, int64_t begin,
                  T* partials, T* packed) {
  const int64_t slices = CeilDiv(g.k - begin, cut.slice_depth);
  ParallelFor(slices, 1, [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
      RunSlice(g, cut, begin + s * cut.slice_depth, partials + s * cut.partial,
               packed + s * cut.packed);
    }
  });
  return slices;
}

// C from `terms` partial products, stored one after another, in their order.
template <typename T>
void Combine(const Gemm<T>& g, const T* partial, int64_t terms) {
  constexpr int64_t kGrain = 16384;
  const int64_t grain = std::max<int64_t>(1, kGrain / (g.n * (terms + 1)));
  ParallelFor(g.m, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = g.c + i * g.ldc;
      if (g.addend == nullptr) {
        std::fill_n(row, g.n, T(0));
      } else if (g.addend != g.c) {
        std::copy_n(g.addend + i * g.ldc, g.n, row);
      }
      for (int64_t s = 0; s < terms; ++s) {
        const T* term = partial + (s * g.m + i) * g.n;
        for (int64_t j = 0; j < g.n; ++j) row[j] += term[j];
      }
      for (int64_t j = 0; j < g.n; ++j) {
        const T x = g.bias == nullptr ? row[j] : row[j] + g.bias[j];
        row[j] = g.relu && T(0) > x ? T(0) : x;
      }
    }
  });
}

// Bytes of what rounds are added up in, up to the next cache line: 0 where
// there is but one.
template <typename T>
int64_t TotalsBytes(const Gemm<T>& g, const GemmCut& cut) {
  if (cut.round == g.k) return 0;
  return RoundUp(g.m * g.n * static_cast<int64_t>(sizeof(SumOfMany<T>)),
                 static_cast<int64_t>(kAlignment));
}

// Round after round of k, each into partial products that are added to the
// totals; what follows the product comes at the end.
template <typename T>
void RunRounds(const Gemm<T>& g, const GemmCut& cut, SumOfMany<T>* totals,
               T* partials, T* packed) {
  constexpr int64_t kGrain = 1 << 14;  // elements of C
  const int64_t elements = g.m * g.n;
  std::fill_n(totals, elements, SumOfMany<T>(0));
  Gemm<T> round = PartialOf(g, partials);
  for (int64_t k = 0; k < g.k; k += cut.round) {
    round.k = std::min(g.k, k + cut.round);
    int64_t terms = 1;
    if (cut.slices > 1) {
      terms = RunSlices(round, cut, k, partials, packed);
    } else {
      RunTiled(round, cut, k, packed);
    }
    ParallelFor(elements, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t s = 0; s < terms; ++s) {
        const T* const term = partials + s * elements;
        for (int64_t i = begin; i < end; ++i) {
          totals[i] += SumOfMany<T>(term[i]);
        }
      }
    });
  }
  ParallelFor(elements, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      partials[i] = static_cast<T>(totals[i]);
    }
  });
  Combine<T>(g, partials, 1);
}

}  // namespace

template <typename T>
Tensor PackB(const Gemm<T>& g) {
  Tensor packed(DTypeOf<T>::value,
                {g.k, RoundUp(g.n, TileKernels<T>().columns)});
  Part all;
  all.columns = g.n;
  all.depth = g.k;
  PackPart(g, all, packed.data<T>());
  return packed;
}

template <typename T>
size_t GemmWorkspace(const Gemm<T>& g) {
  const GemmCut cut = CutOf(g);
  return static_cast<size_t>(TotalsBytes(g, cut)) +
         static_cast<size_t>(cut.slices * (cut.packed + cut.partial)) *
             sizeof(T);
}

template <typename T>
void RunGemm(const Gemm<T>& g, void* workspace) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    Combine<T>(g, nullptr, 0);
    return;
  }
  const GemmCut cut = CutOf(g);
  const int64_t totals = TotalsBytes(g, cut);
  T* const packed =
      static_cast<T*>(workspace) + totals / static_cast<int64_t>(sizeof(T));
  T* const partials = packed + cut.slices * cut.packed;
  if (totals > 0) {
    RunRounds(g, cut, static_cast<SumOfMany<T>*>(workspace), partials, packed);
  } else if (cut.slices > 1) {
    Combine<T>(g, partials, RunSlices(g, cut, 0, partials, packed));
  } else {
    RunTiled(g, cut, 0, packed);
  }
}

template Tensor PackB<float>(const Gemm<float>&);
template Tensor PackB<double>(const Gemm<double>&);
template size_t GemmWorkspace<float>(const Gemm<float>&);
template size_t GemmWorkspace<double>(const Gemm<double>&);
template void RunGemm<float>(const Gemm<float>&, void*);
template void RunGemm<double>(const Gemm<double>&, void*);

}  // namespace sluice
