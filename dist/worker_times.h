// What a worker of a training says of itself, for people to see who is slow.
#ifndef SLUICE_DIST_WORKER_TIMES_H_
#define SLUICE_DIST_WORKER_TIMES_H_

#include <cstdint>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Since it began. Of workers that wait for each other the slow one is the one
// that waits least.
struct WorkerTimes {
  int64_t examples = 0;  // that it has computed itself
  int64_t trained = 0;   // microseconds that this took, waits included
  int64_t waited = 0;    // of these, for other processes

  friend bool operator==(const WorkerTimes&, const WorkerTimes&) = default;
};

}  // namespace sluice

#endif  // SLUICE_DIST_WORKER_TIMES_H_
