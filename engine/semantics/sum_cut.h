// How the sum of a FusedSum node is cut into segments on a GPU: one kernel
// makes a sum of each, and where there are several, a second adds those.
#ifndef SLUICE_ENGINE_SEMANTICS_SUM_CUT_H_
#define SLUICE_ENGINE_SEMANTICS_SUM_CUT_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "engine/ceil_div.h"

namespace sluice {

struct SumCut {
  int lanes = 1;         // threads side by side: on a row, or on packs of it
  int64_t segment = 1;   // elements of a row, or rows
  int64_t segments = 1;  // of each sum
  int64_t groups = 1;    // of columns that a block takes (CutLeadingSum)
};

inline constexpr int kSumThreads = 256;  // of a block

namespace sum_cut {
// Tasks that fill any GPU of today, and so end the cutting of sums, but for
// those that a thread would add more terms of than it may: in one sum of very
// many the last digits of each would be lost.
inline constexpr int64_t kEnoughTasks = 1024, kMostTerms = 256;
// Elements that a thread sums alone, and packs that a warp does.
inline constexpr int64_t kShortRow = 8, kWarpPacks = 128;
}  // namespace sum_cut

// [rows, columns] to [rows]; threads take `pack` elements at once.
inline SumCut CutTrailingSum(int64_t rows, int64_t columns, int pack) {
  SumCut cut;
  cut.lanes = columns <= sum_cut::kShortRow                   ? 1
              : CeilDiv(columns, pack) <= sum_cut::kWarpPacks ? 32
                                                              : kSumThreads;
  // A thread should have several packs of a segment.
  const int64_t unit = int64_t{pack} * kSumThreads;
  const int64_t wanted = std::max(
      std::clamp<int64_t>(columns / (8 * unit), 1,
                          std::max<int64_t>(sum_cut::kEnoughTasks / rows, 1)),
      CeilDiv(columns, sum_cut::kMostTerms * kSumThreads));
  cut.segment = unit;
  if (columns > 0) cut.segment *= CeilDiv(CeilDiv(columns, wanted), unit);
  cut.segments = std::max<int64_t>(CeilDiv(columns, cut.segment), 1);
  return cut;
}

// [rows, columns] to [columns].
inline SumCut CutLeadingSum(int64_t rows, int64_t columns, int pack) {
  SumCut cut;
  const int64_t packs = CeilDiv(columns, pack);
  cut.lanes = static_cast<int>(
      std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(packs, 32))));
  cut.groups = std::max<int64_t>(CeilDiv(packs, cut.lanes), 1);
  const int64_t teams = kSumThreads / cut.lanes;  // of a block
  const int64_t wanted =
      std::max(std::clamp<int64_t>(
                   rows / (8 * teams), 1,
                   std::max<int64_t>(sum_cut::kEnoughTasks / cut.groups, 1)),
               CeilDiv(rows, sum_cut::kMostTerms * teams));
  cut.segment = std::max<int64_t>(CeilDiv(rows, wanted), 1);
  cut.segments = std::max<int64_t>(CeilDiv(rows, cut.segment), 1);
  return cut;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_SUM_CUT_H_
