// Which CPUs a process may run on.
#ifndef SLUICE_ENGINE_AFFINITY_H_
#define SLUICE_ENGINE_AFFINITY_H_

#include <vector>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// Their numbers, ascending, as sched_getaffinity(2) has them: within the cpuset
// and what taskset or a launcher has bound it to. Of the calling thread, 0, or
// of the first thread of another process. Empty, with errno, where the system
// does not say.
std::vector<int> CpusOf(int process);

// Has the calling thread, and those that it starts from now on, run on these
// alone. False, with errno, where the system does not.
bool BindToCpus(const std::vector<int>& cpus);

}  // namespace sluice

#endif  // SLUICE_ENGINE_AFFINITY_H_
