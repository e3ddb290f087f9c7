#include "engine/affinity.h"

#include <cerrno>
#include <cstddef>
#include <memory>

#if defined(__linux__)
#include <sched.h>
#endif

namespace sluice {

#if defined(__linux__)
namespace {

// Linux's limit: what a cpu_set_t has room for is less, and an error where
// there may be more.
constexpr int kMostCpus = 8192;

struct CpuSetDeleter {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, CpuSetDeleter>;

CpuSet EmptyCpuSet() {
  CpuSet set(CPU_ALLOC(kMostCpus));
  CPU_ZERO_S(CPU_ALLOC_SIZE(kMostCpus), set.get());
  return set;
}

}  // namespace

std::vector<int> CpusOf(int process) {
  const CpuSet set = EmptyCpuSet();
  const size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
  std::vector<int> cpus;
  if (sched_getaffinity(process, bytes, set.get()) != 0) return cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) {
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

bool BindToCpus(const std::vector<int>& cpus) {
  const CpuSet set = EmptyCpuSet();
  const size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
  for (const int cpu : cpus) {
    CPU_SET_S(static_cast<size_t>(cpu), bytes, set.get());
  }
  return sched_setaffinity(0, bytes, set.get()) == 0;
}
#else
std::vector<int> CpusOf(int) {
  errno = ENOSYS;
  return {};
}

bool BindToCpus(const std::vector<int>&) {
  errno = ENOSYS;
  return false;
}
#endif

}  // namespace sluice
