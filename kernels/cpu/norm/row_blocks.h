// Blocks of rows, for sums over the rows that are taken per block and combined
// in order.
#ifndef SLUICE_KERNELS_CPU_NORM_ROW_BLOCKS_H_
#define SLUICE_KERNELS_CPU_NORM_ROW_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "engine/ceil_div.h"
#include "engine/shape.h"
#include "engine/threads.h"
#include "kernels/cpu/sum_in_runs.h"

namespace sluice::cpu {

// Elements of a block, at most or of few rows, and, about, of a piece of work,
// which is blocks.
inline constexpr int64_t kBlockElements = 1 << 14;
// Rows of a block, at most: in one float sum of very many the last digits of
// each would be lost.
inline constexpr int64_t kMostBlockRows = 256;

// Rows of the last dimension.
struct RowBlocks {
  int64_t rows = 0, width = 0;
  int64_t block_rows = 0;

  int64_t blocks() const { return CeilDiv(rows, block_rows); }
  // Blocks of a piece.
  int64_t grain() const {
    return std::max<int64_t>(
        kBlockElements / std::max<int64_t>(block_rows * width, 1), 1);
  }
};

// Blocks of a multiple of `unit` rows, a power of two, and of no fewer than
// `least`.
inline RowBlocks RowBlocksOf(const Shape& x, int64_t unit, int64_t least) {
  RowBlocks b;
  b.width = x[-1];
  b.rows = x.elements(0, x.rank() - 1);
  const int64_t rows = kBlockElements / std::max<int64_t>(b.width, 1);
  b.block_rows = std::max(std::min(RoundUp(rows, unit), kMostBlockRows), least);
  return b;
}

// --- What blocks leave -------------------------------------------------------
// Two vectors of the width each, one block's after another's.

// Columns that are combined at a time, in double: in float a sum of very many
// blocks would lose digits, and a mean stop moving.
inline constexpr int64_t kCombinedColumns = 256;

// Calls fn(first, number) for all columns, so many at a time.
template <typename Fn>
void ForCombinedColumns(const RowBlocks& b, Fn fn) {
  const int64_t elements = kCombinedColumns * std::max<int64_t>(b.blocks(), 1);
  const int64_t grain =
      kCombinedColumns * std::max<int64_t>(kBlockElements / elements, 1);
  ParallelFor(b.width, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c += kCombinedColumns) {
      fn(c, std::min(kCombinedColumns, end - c));
    }
  });
}

// totals[width] = the blocks' vectors `which`, 0 or 1, of `sums` added up, of
// no blocks 0: runs of them, and what these come to in double. totals may be
// the first block's vector.
template <typename C>
void AddBlocks(const RowBlocks& b, const C* sums, int which, C* totals) {
  if (b.blocks() == 0) {  // of which there are no sums
    std::fill_n(totals, b.width, C(0));
    return;
  }
  ForCombinedColumns(b, [&](int64_t first, int64_t n) {
    SumRowsInRuns(sums + which * b.width + first, b.blocks(), 2 * b.width, n,
                  totals + first);
  });
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_NORM_ROW_BLOCKS_H_
