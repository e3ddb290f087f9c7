// The traces of several workers, and of parameter servers, as one, by rank 0's
// clock.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_RANK_TRACES_H_
#define SLUICE_MODELS_TRAIN_WORKERS_RANK_TRACES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/train/workers/meetings.h"
#include "models/train/workers/workers.h"

namespace sluice {

// By how much a clock is ahead of rank 0's, in nanoseconds, at most `within`
// wrong: that much time passed in the exchange that tells.
struct ClockShift {
  int64_t ahead = 0;
  int64_t within = 0;
};
// This worker's. Waits for the others. `now` reads a clock that only goes
// forward.
ClockShift ShiftFromFirst(const Workers& workers,
                          const std::function<int64_t()>& now);
// Of who says at once, when `ask` does, what its clock is, from `now`.
ClockShift ShiftByAsking(const std::function<int64_t()>& ask,
                         const std::function<int64_t()>& now);

// Of Chrome traces (ChromeTrace::ToJson), by rank and then of so many servers,
// and by how much each one's clock is ahead: one trace, with processes
// "rank 1 /cpu:0" and "ps 0 /cpu:0". Throws Error(kDataLoss) naming the rank or
// server of one that is none.
std::string MergedTrace(const std::vector<std::string>& traces,
                        const std::vector<int64_t>& ahead, size_t servers = 0);

// Has servers, if there are some, note what they run from now on, for all
// workers. By rank 0 alone. Throws Error where one is gone.
void TraceServers(const TrainingServers& servers);
// `mine`, those of the others and of the servers, for rank 0, else nothing;
// `within` is the worst of the shifts'. Waits for the others. Throws Error.
std::string GatheredTrace(const Workers& workers,
                          const TrainingServers& servers,
                          const std::string& mine, int64_t* within);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_RANK_TRACES_H_
