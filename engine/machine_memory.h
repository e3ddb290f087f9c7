// How much memory this process may have: the machine's, or less where it runs
// in a container or another control group with a limit.
#ifndef SLUICE_ENGINE_MACHINE_MEMORY_H_
#define SLUICE_ENGINE_MACHINE_MEMORY_H_

#include <cstddef>
#include <limits>
#include <string>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// In bytes.
struct MachineMemory {
  static constexpr size_t kUnknown = std::numeric_limits<size_t>::max();
  size_t total = kUnknown;
  size_t available = kUnknown;  // can be taken without swapping
};

// Reads /proc/meminfo and the process's control groups (cgroup version 1 or 2)
// up to the root, and returns the least. File pages that a group would give
// back count as available. `root`: where /proc and /sys are, for tests.
MachineMemory ReadMachineMemory(const std::string& root = "");

// The number of kB that a line "key:   123 kB" of a file in /proc gives, in
// bytes; `fallback` without such a line.
size_t ProcBytes(const std::string& path, const std::string& key,
                 size_t fallback);

}  // namespace sluice

#endif  // SLUICE_ENGINE_MACHINE_MEMORY_H_
