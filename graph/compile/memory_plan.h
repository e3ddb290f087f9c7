// Static memory planning: buffers with lifetimes to offsets in one arena.
#ifndef SLUICE_GRAPH_COMPILE_MEMORY_PLAN_H_
#define SLUICE_GRAPH_COMPILE_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

// A buffer that is written at schedule position `first` and last used at
// `last`, both included.
struct BufferRequest {
  size_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // parallel to the requests, kAlignment-aligned
  size_t arena_bytes = 0;
  // Largest sum of the (aligned) bytes live at one position: no plan can do
  // with less.
  size_t lower_bound = 0;
};

// Buffers whose lifetimes meet never overlap. Greedy by size: the largest
// first, each at the lowest offset free over its lifetime (Pisarchyk and Lee
// 2020, "Efficient Memory Management for Deep Neural Net Inference").
MemoryPlan PlanMemory(const std::vector<BufferRequest>& requests);

// Gives every buffer its own place, whatever its lifetime, with at least
// kAlignment unused bytes before and behind it (Plan::checked).
MemoryPlan PlanApart(const std::vector<BufferRequest>& requests);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_MEMORY_PLAN_H_
