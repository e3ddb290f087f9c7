// How a thread of a GPU adds up its share of a long row, which a block's
// threads are given one at a time: in runs, whose sums are then added, since in
// one sum of very many the last digits of each would be lost.
#ifndef SLUICE_ENGINE_SEMANTICS_ROW_RUN_H_
#define SLUICE_ENGINE_SEMANTICS_ROW_RUN_H_

#include <cstdint>

namespace sluice {

inline constexpr int kRowRun = 256;          // elements
inline constexpr int kMostRowThreads = 256;  // of the block

// Whether a share of a row of n elements may be more than one run.
constexpr bool HasRowRuns(int64_t n) {
  return n > int64_t{kRowRun} * kMostRowThreads;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_ROW_RUN_H_
