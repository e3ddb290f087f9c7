// Whether a step fits into the machine's memory.
#ifndef SLUICE_MODELS_TRAIN_RUN_MEMORY_CHECK_H_
#define SLUICE_MODELS_TRAIN_RUN_MEMORY_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// Bytes that a step is going to take and does not hold yet.
struct MemoryNeed {
  int64_t examples = 0;  // in the step
  // Examples in the whole batch (--batch-size), if other workers have the rest
  // of it, or if the rest comes later; 0: the step has the whole batch.
  int64_t batch = 0;
  size_t arena = 0;
  size_t variables = 0;
  size_t batches = 0;  // as fed, those prepared ahead included
};

// kResourceExhausted, with the sizes and about which batch would fit, if the
// need is more than the machine has free.
Status CheckMemory(const MemoryNeed& need);
// CheckMemory against `available` bytes, such as those of a GPU's memory.
Status CheckMemory(const MemoryNeed& need, size_t available);

// Bytes that this process may take without swapping (engine/machine_memory.h).
// SIZE_MAX where that is not known.
size_t AvailableMemory();
// The most bytes of memory that this process has held at a time; 0 where that
// is not known.
size_t PeakMemory();

// "3.2 GB"
std::string FormatBytes(size_t bytes);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_MEMORY_CHECK_H_
