#include "kernels/cpu/gemm/gemm.h"

#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/threads.h"
#include "kernels/cpu/simd/gemm_tile.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice {
namespace {

using simd::GemmKernels;
using simd::GemmTile;
using simd::kMaxTileK;

// Rows of C per task: they and kMaxTileK columns of A fit half of an L2 cache
// of 256 KiB.
constexpr int64_t kMaxTaskRows = 96;
// Fewer rows than this would load the panels of B too often.
constexpr int64_t kMinTaskRows = 48;
constexpr int64_t kMinTaskColumns = 64;
// The same where A is read through a reader, by every task for itself.
constexpr int64_t kMinReadingColumns = 128;
// Multiply-adds that repay handing a task to another thread (about 10 us).
constexpr int64_t kMinTaskWork = 1 << 19;
constexpr int64_t kMaxTasks = 64;
constexpr int64_t kMaxTransposedTasks = 16;

// Elements of B that are packed at a time: they are used while in L2 or L3.
constexpr int64_t kMaxPacked = 1 << 18;
// Columns of B that one call packs.
constexpr int64_t kPackColumns = 128;
// Packing B pays when this many rows of A use it; where its rows are short,
// even more, since reading it in place then misses the cache less.
constexpr int64_t kPackRows = 24;
constexpr int64_t kPackRowsShort = 192;
constexpr int64_t kShortRowBytes = 256;

// Columns of C from which packing a transposed A pays, and where its rows are a
// multiple of 4 KiB apart.
constexpr int64_t kPackAColumns = 192;
constexpr int64_t kPackAColumnsSameSets = 96;

// k is cut into slices when C has too few tasks and each slice still has this
// many blocks of k.
constexpr int64_t kMinSliceBlocks = 4;
constexpr int64_t kMaxSlices = 16;
// Tasks enough for C not to be sliced where B costs nothing to read in pieces.
constexpr int64_t kEnoughTasks = 8;
// Elements of C up to which each slice may have a copy.
constexpr int64_t kMaxPartial = 1 << 18;

// Stack of a task for a block of A: rows from a reader, or a transposed A in
// register tiles. The padding keeps rows of it from falling on the same cache
// sets.
constexpr int64_t kBlockStride = kMaxTileK + 16;
// Rows of a transposed A that are read at a time.
constexpr int64_t kReadRows = 16;

template <typename T>
const GemmKernels<T>& Kernels();
template <>
const GemmKernels<float>& Kernels<float>() {
  return Simd().gemm_f32;
}
template <>
const GemmKernels<double>& Kernels<double>() {
  return Simd().gemm_f64;
}

// How a product is cut, from its sizes alone. Not at all where one is 0.
struct Cut {
  bool pack_b = false;
  int64_t task_rows = 0;     // of C
  int64_t task_columns = 0;  // of C, whole panels
  int64_t columns = 0;       // of C that share one packing of B
  int64_t depth = 0;         // of k likewise, whole blocks of kMaxTileK
  int64_t slices = 1;        // of k, summed at the end
  int64_t slice_depth = 0;   // whole blocks
  int64_t packed = 0;        // elements of packed B, of each slice
  int64_t partial = 0;       // elements of C that each slice needs
};

template <typename T>
Cut MakeCut(const Gemm<T>& g) {
  if (g.m == 0 || g.n == 0 || g.k == 0) return {};  // nothing to multiply
  const GemmKernels<T>& kernels = Kernels<T>();
  const int64_t padded_n = RoundUp(g.n, kernels.columns);
  Cut cut;
  const int64_t in_place_rows =
      g.n * static_cast<int64_t>(sizeof(T)) <= kShortRowBytes ? kPackRowsShort
                                                              : kPackRows;
  const bool ready_b = g.packed_b != nullptr;
  cut.pack_b = !ready_b && (g.transpose_b || g.read_b.read != nullptr ||
                            g.m > in_place_rows);

  // A transposed A is copied by every task: few and wide ones, or slices.
  const int64_t blocks = CeilDiv(g.k, kMaxTileK);
  const bool sliced = g.transpose_a &&
                      blocks >= kMaxSlices / 2 * kMinSliceBlocks &&
                      g.m * g.n <= kMaxPartial;
  const int64_t wanted =
      std::clamp<int64_t>(g.m * g.n * g.k / kMinTaskWork, 1,
                          g.transpose_a ? kMaxTransposedTasks : kMaxTasks);
  const int64_t min_row_tasks = CeilDiv(g.m, kMaxTaskRows);
  // Few rows and a B that is ready: each element of B is read once, by columns.
  const int64_t row_tasks =
      sliced || (ready_b && min_row_tasks == 1)
          ? min_row_tasks
          : std::clamp(wanted, min_row_tasks,
                       std::max(min_row_tasks, CeilDiv(g.m, kMinTaskRows)));
  cut.task_rows = RoundUp(CeilDiv(g.m, row_tasks), kernels.rows);
  const int64_t min_columns = ready_b && g.read_a.read != nullptr
                                  ? kMinReadingColumns
                                  : kMinTaskColumns;
  const int64_t column_tasks =
      sliced ? 1
             : std::clamp<int64_t>(CeilDiv(wanted, row_tasks), 1,
                                   CeilDiv(padded_n, min_columns));
  cut.task_columns = RoundUp(CeilDiv(g.n, column_tasks), kernels.columns);

  const int64_t tasks =
      CeilDiv(g.m, cut.task_rows) * CeilDiv(g.n, cut.task_columns);
  cut.slices = std::min({kMaxSlices, sliced ? kMaxSlices : wanted / tasks,
                         blocks / kMinSliceBlocks});
  if (ready_b && tasks >= kEnoughTasks) cut.slices = 1;
  if (cut.slices > 1) {
    cut.slice_depth = CeilDiv(blocks, cut.slices) * kMaxTileK;
    cut.slices = CeilDiv(g.k, cut.slice_depth);
  }
  if (cut.slices > 1) {
    // Each slice packs one block of B at a time.
    cut.columns = padded_n;
    cut.depth = kMaxTileK;
    cut.partial = g.m * g.n;
  } else if (ready_b) {
    cut.slices = 1;
    cut.columns = padded_n;
    cut.depth = blocks * kMaxTileK;
  } else {
    cut.slices = 1;
    cut.columns = std::min(
        padded_n, std::max<int64_t>(kMaxPacked / (2 * kMaxTileK) /
                                        cut.task_columns * cut.task_columns,
                                    cut.task_columns));
    cut.depth = std::min(
        blocks * kMaxTileK,
        std::max<int64_t>(kMaxPacked / cut.columns / kMaxTileK, 1) * kMaxTileK);
  }
  if (cut.pack_b) cut.packed = cut.columns * std::min(cut.depth, g.k);
  return cut;
}

// Packs rows [k0, k0 + depth) and columns [j0, j0 + columns) of op(B), blocks
// of kMaxTileK rows one after another, each in panels.
template <typename T>
void PackBlock(const Gemm<T>& g, int64_t k0, int64_t depth, int64_t j0,
               int64_t columns, T* panels, int64_t panel_stride) {
  const GemmKernels<T>& kernels = Kernels<T>();
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
  const int64_t width = Kernels<T>().columns;
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
  const GemmKernels<T>& kernels = Kernels<T>();
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
    const int64_t rows = Kernels<T>().rows;
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
Panels<T> PanelsOf(const Gemm<T>& g, const Cut& cut, const Part& part,
                   const T* packed) {
  if (g.packed_b == nullptr) {
    return {cut.pack_b ? packed : nullptr, part.column, part.columns};
  }
  return {g.packed_b + part.k * RoundUp(g.n, Kernels<T>().columns), 0, g.n};
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
  const GemmKernels<T>& kernels = Kernels<T>();
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

// All of C, tasks side by side.
template <typename T>
void RunTiled(const Gemm<T>& g, const Cut& cut, T* packed) {
  for (int64_t j = 0; j < g.n; j += cut.columns) {
    for (int64_t k = 0; k < g.k; k += cut.depth) {
      Part shared;
      shared.column = j;
      shared.columns = std::min(cut.columns, g.n - j);
      shared.k = k;
      shared.depth = std::min(cut.depth, g.k - k);
      if (cut.pack_b) PackPart(g, shared, packed);
      const Panels<T> panels = PanelsOf(g, cut, shared, packed);
      const int64_t column_tasks = CeilDiv(shared.columns, cut.task_columns);
      const int64_t tasks = column_tasks * CeilDiv(g.m, cut.task_rows);
      ParallelFor(tasks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
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

// One slice of k into its own partial C.
template <typename T>
void RunSlice(const Gemm<T>& g, const Cut& cut, int64_t slice, T* partial,
              T* packed) {
  const int64_t begin = slice * cut.slice_depth;
  Gemm<T> own = g;
  own.c = partial;
  own.ldc = g.n;
  own.addend = nullptr;
  own.bias = nullptr;
  own.relu = false;
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

}  // namespace

template <typename T>
Tensor PackB(const Gemm<T>& g) {
  Tensor packed(DTypeOf<T>::value, {g.k, RoundUp(g.n, Kernels<T>().columns)});
  Part all;
  all.columns = g.n;
  all.depth = g.k;
  PackPart(g, all, packed.data<T>());
  return packed;
}

template <typename T>
size_t GemmWorkspace(const Gemm<T>& g) {
  const Cut cut = MakeCut(g);
  return static_cast<size_t>(cut.slices * cut.packed +
                             (cut.slices > 1 ? cut.slices * cut.partial : 0)) *
         sizeof(T);
}

template <typename T>
void RunGemm(const Gemm<T>& g, void* workspace) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    Combine<T>(g, nullptr, 0);
    return;
  }
  const Cut cut = MakeCut(g);
  T* const space = static_cast<T*>(workspace);
  if (cut.slices == 1) {
    RunTiled(g, cut, space);
    return;
  }
  T* const partials = space + cut.slices * cut.packed;
  ParallelFor(cut.slices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      RunSlice(g, cut, s, partials + s * cut.partial, space + s * cut.packed);
    }
  });
  Combine<T>(g, partials, cut.slices);
}

template Tensor PackB<float>(const Gemm<float>&);
template Tensor PackB<double>(const Gemm<double>&);
template size_t GemmWorkspace<float>(const Gemm<float>&);
template size_t GemmWorkspace<double>(const Gemm<double>&);
template void RunGemm<float>(const Gemm<float>&, void*);
template void RunGemm<double>(const Gemm<double>&, void*);

}  // namespace sluice
