// Merges the traces of several workers and parameter servers into one, by rank
// 0's clock.
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

// How far a clock is ahead of rank 0's, in nanoseconds, with an error of at
// most `within`, the time that the exchange measuring it took.
struct ClockShift {
  int64_t ahead = 0;
  int64_t within = 0;
};
// The shift of this worker's clock. Waits for the others. `now` reads a clock
// that only goes forward.
ClockShift ShiftFromFirst(const Workers& workers,
                          const std::function<int64_t()>& now);
// The shift of another process's clock, which `ask` asks for and gets at once,
// from the clock `now`.
ClockShift ShiftByAsking(const std::function<int64_t()>& ask,
                         const std::function<int64_t()>& now);

// Merges Chrome traces (ChromeTrace::ToJson), by rank and then of `servers`
// servers, whose clocks are `ahead` nanoseconds ahead, into one trace with
// processes "rank 1 /cpu:0" and "ps 0 /cpu:0". Throws Error(kDataLoss) naming
// the rank or server of an invalid trace.
std::string MergedTrace(const std::vector<std::string>& traces,
                        const std::vector<int64_t>& ahead, size_t servers = 0);

// Makes servers, if there are any, record what they run from now on, for all
// workers. Only rank 0 calls it. Throws Error if a server is gone.
void TraceServers(const TrainingServers& servers);
// On rank 0 the merged trace of `mine`, the other workers' and the servers'; ""
// on others. `within` is set to the largest of the shifts'. Waits for the other
// workers. Throws Error.
std::string GatheredTrace(const Workers& workers,
                          const TrainingServers& servers,
                          const std::string& mine, int64_t* within);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_RANK_TRACES_H_
