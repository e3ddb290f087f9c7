#include "models/train/run/memory_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/machine_memory.h"

namespace sluice {

Status CheckMemory(const MemoryNeed& need) {
  return CheckMemory(need, AvailableMemory());
}

Status CheckMemory(const MemoryNeed& need, size_t available) {
  const size_t total = need.arena + need.variables + need.batches;
  if (total <= available) return {};
  // Arena and batches grow with the number of examples, variables do not.
  const double each = static_cast<double>(need.arena + need.batches) /
                      static_cast<double>(std::max<int64_t>(need.examples, 1));
  const double left =
      static_cast<double>(available) - static_cast<double>(need.variables);
  const auto fit = static_cast<int64_t>(std::max(left / each, 0.0));
  const int64_t batch = need.batch > 0 ? need.batch : need.examples;
  // So many of these make a batch.
  const double shares =
      static_cast<double>(batch) /
      static_cast<double>(std::max<int64_t>(need.examples, 1));
  return ResourceExhausted(fmt::format(
      "a batch of {} needs {} of memory (arena {}, variables {}, batches {}) "
      "and {} are free; {}",
      batch, FormatBytes(total), FormatBytes(need.arena),
      FormatBytes(need.variables), FormatBytes(need.batches),
      FormatBytes(available),
      fit > 0
          ? fmt::format("about --batch-size {} fits",
                        static_cast<int64_t>(static_cast<double>(fit) * shares))
          : "not even one example fits"));
}

size_t AvailableMemory() {
  return ReadMachineMemory().available;
}

size_t PeakMemory() {
  return ProcBytes("/proc/self/status", "VmHWM", 0);
}

std::string FormatBytes(size_t bytes) {
  const auto amount = static_cast<double>(bytes);
  if (amount >= 1e9) return fmt::format("{:.1f} GB", amount / 1e9);
  if (amount >= 1e6) return fmt::format("{:.1f} MB", amount / 1e6);
  return fmt::format("{:.1f} kB", amount / 1e3);
}

}  // namespace sluice
