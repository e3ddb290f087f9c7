#include "graph/compile/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/ceil_div.h"
#include "engine/tensor.h"

namespace sluice {
namespace {

size_t Aligned(size_t bytes) {
  return RoundUp(bytes, kAlignment);
}

size_t LowerBound(const std::vector<BufferRequest>& requests) {
  std::map<int32_t, int64_t> change;  // of the live bytes, by position
  for (const BufferRequest& r : requests) {
    change[r.first] += static_cast<int64_t>(Aligned(r.bytes));
    change[r.last + 1] -= static_cast<int64_t>(Aligned(r.bytes));
  }
  int64_t live = 0, most = 0;
  for (const auto& [position, bytes] : change) {
    live += bytes;
    most = std::max(most, live);
  }
  return static_cast<size_t>(most);
}

}  // namespace

MemoryPlan PlanMemory(const std::vector<BufferRequest>& requests) {
  MemoryPlan plan;
  plan.offsets.resize(requests.size());
  plan.lower_bound = LowerBound(requests);

  std::vector<int> by_size(requests.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::sort(by_size.begin(), by_size.end(), [&](int a, int b) {
    if (requests[a].bytes != requests[b].bytes) {
      return requests[a].bytes > requests[b].bytes;
    }
    return requests[a].first != requests[b].first
               ? requests[a].first < requests[b].first
               : a < b;
  });

  struct Placed {
    size_t offset, end;
    int32_t first, last;
  };
  std::vector<Placed> placed;  // by offset
  placed.reserve(requests.size());
  for (int i : by_size) {
    const BufferRequest& r = requests[i];
    const size_t bytes = Aligned(r.bytes);
    size_t offset = 0;
    for (const Placed& other : placed) {
      if (other.last < r.first || r.last < other.first) continue;
      if (other.offset >= offset + bytes) break;  // it fits into this gap
      offset = std::max(offset, other.end);
    }
    plan.offsets[i] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + bytes);
    if (bytes == 0) continue;
    const auto at = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [](size_t o, const Placed& other) { return o < other.offset; });
    placed.insert(at, {offset, offset + bytes, r.first, r.last});
  }
  return plan;
}

MemoryPlan PlanApart(const std::vector<BufferRequest>& requests) {
  MemoryPlan plan;
  plan.lower_bound = LowerBound(requests);
  plan.arena_bytes = kAlignment;
  for (const BufferRequest& r : requests) {
    plan.offsets.push_back(plan.arena_bytes);
    plan.arena_bytes += Aligned(r.bytes) + kAlignment;
  }
  return plan;
}

}  // namespace sluice
