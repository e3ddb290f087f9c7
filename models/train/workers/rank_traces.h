// The traces of several workers as one, by rank 0's clock.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_RANK_TRACES_H_
#define SLUICE_MODELS_TRAIN_WORKERS_RANK_TRACES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/train/workers/workers.h"

namespace sluice {

// By how much this worker's clock is ahead of rank 0's, in nanoseconds, at most
// `within` wrong: that much time passed in the exchange that tells.
struct ClockShift {
  int64_t ahead = 0;
  int64_t within = 0;
};
// Waits for the others. `now` reads a clock that only goes forward.
ClockShift ShiftFromFirst(const Workers& workers,
                          const std::function<int64_t()>& now);

// Of Chrome traces (ChromeTrace::ToJson), by rank, and by how much each one's
// clock is ahead: one trace, with processes "rank 1 /cpu:0". Throws
// Error(kDataLoss) naming the rank of one that is none.
std::string MergedTrace(const std::vector<std::string>& traces,
                        const std::vector<int64_t>& ahead);

// `mine` and those of the others, for rank 0, else nothing; `within` is the
// worst of the shifts'. Waits for the others.
std::string GatheredTrace(const Workers& workers, const std::string& mine,
                          int64_t* within);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_RANK_TRACES_H_
