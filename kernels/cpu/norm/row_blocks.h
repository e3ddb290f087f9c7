// Blocks of rows, for sums over the rows that are taken per block and combined
// in order.
#ifndef SLUICE_KERNELS_CPU_NORM_ROW_BLOCKS_H_
#define SLUICE_KERNELS_CPU_NORM_ROW_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "engine/ceil_div.h"
#include "engine/shape.h"

namespace sluice::cpu {

// Rows of the last dimension.
struct RowBlocks {
  int64_t rows = 0, width = 0;
  int64_t block_rows = 0;

  int64_t blocks() const { return CeilDiv(rows, block_rows); }
};

// Blocks of about 2^14 elements, but of a multiple of `unit` rows, and no fewer
// than `least`.
inline RowBlocks RowBlocksOf(const Shape& x, int64_t unit, int64_t least) {
  RowBlocks b;
  b.width = x[-1];
  b.rows = x.elements(0, x.rank() - 1);
  const int64_t rows = (1 << 14) / std::max<int64_t>(b.width, 1);
  b.block_rows = std::max(RoundUp(rows, unit), least);
  return b;
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_NORM_ROW_BLOCKS_H_
