#include "kernels/cpu/gemm/gemm_cut.h"

#include <algorithm>

#include "engine/ceil_div.h"
#include "kernels/cpu/simd/gemm_tile.h"

namespace sluice {
namespace {

using simd::kMaxTileK;

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
// Packing B pays when this many rows of A use it; where its rows are short,
// even more, since reading it in place then misses the cache less.
constexpr int64_t kPackRows = 24;
constexpr int64_t kPackRowsShort = 192;
constexpr int64_t kShortRowBytes = 256;

// k is cut into slices when C has too few tasks and each slice still has this
// many blocks of k.
constexpr int64_t kMinSliceBlocks = 4;
constexpr int64_t kMaxSlices = 16;
// Tasks enough for C not to be sliced where B costs nothing to read in pieces.
constexpr int64_t kEnoughTasks = 8;
// Elements of C up to which each slice may have a copy.
constexpr int64_t kMaxPartial = 1 << 18;

// Blocks of k that are added one to another, where there is room for what many
// times so many come to: up to so many elements of C.
constexpr int64_t kMaxChain = 64 * kMaxTileK;
constexpr int64_t kMaxTotals = 1 << 22;

}  // namespace

template <typename T>
GemmCut CutOf(const Gemm<T>& g) {
  if (g.m == 0 || g.n == 0 || g.k == 0) return {};  // nothing to multiply
  const simd::GemmKernels<T>& kernels = TileKernels<T>();
  const int64_t padded_n = RoundUp(g.n, kernels.columns);
  GemmCut cut;
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

  cut.round = g.k;
  if ((cut.slices > 1 ? cut.slice_depth : g.k) > kMaxChain &&
      g.m * g.n <= kMaxTotals) {
    if (cut.slices > 1) cut.slice_depth = kMaxChain;
    cut.round = std::min(g.k, cut.slices * kMaxChain);
    cut.partial = g.m * g.n;
  }
  return cut;
}

template GemmCut CutOf<float>(const Gemm<float>&);
template GemmCut CutOf<double>(const Gemm<double>&);

}  // namespace sluice
