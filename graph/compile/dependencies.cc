#include "graph/compile/dependencies.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "engine/status.h"

namespace sluice {

bool DataflowPays(const std::vector<double>& bytes, const Waits& waits) {
  constexpr double kFixedBytes = 1 << 10;
  constexpr double kSmallBytes = 1 << 16;
  constexpr size_t kFewest = 16;  // instructions
  const size_t n = bytes.size();
  std::vector<double> finish(n);
  double total = 0, small = 0, longest = 0;
  for (size_t i = 0; i < n; ++i) {
    const double cost = kFixedBytes + bytes[i];
    double start = 0;
    for (const int w : waits[i]) start = std::max(start, finish[w]);
    finish[i] = start + cost;
    longest = std::max(longest, finish[i]);
    total += cost;
    if (cost < kSmallBytes) small += cost;
  }
  return n >= kFewest && small > 0.5 * total && total > 1.5 * longest;
}

void AddReuseWaits(std::vector<ArenaUse> uses, Waits* waits) {
  struct Segment {
    size_t end;
    const std::vector<int>* touched;
  };
  std::map<size_t, Segment> segments;  // by begin; they never overlap
  std::stable_sort(uses.begin(), uses.end(),
                   [](const ArenaUse& a, const ArenaUse& b) {
                     return a.touched->front() < b.touched->front();
                   });
  for (const ArenaUse& use : uses) {
    const int writer = use.touched->front();
    auto it = segments.upper_bound(use.begin);
    if (it != segments.begin()) --it;
    while (it != segments.end() && it->first < use.end) {
      const size_t old_begin = it->first;
      const Segment old = it->second;
      if (old.end <= use.begin) {
        ++it;
        continue;
      }
      for (const int user : *old.touched) {
        if (user != writer) (*waits)[writer].push_back(user);
      }
      it = segments.erase(it);
      if (old_begin < use.begin) segments[old_begin] = {use.begin, old.touched};
      if (old.end > use.end) {
        it = segments.insert_or_assign(use.end, old).first;
      }
    }
    segments[use.begin] = {use.end, use.touched};
  }
}

void WriteDependencies(Waits waits, Plan* plan) {
  const size_t n = plan->instructions.size();
  std::vector<std::vector<uint32_t>> successors(n);
  for (size_t i = 0; i < n; ++i) {
    std::vector<int>& before = waits[i];
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    plan->instructions[i].dependencies = static_cast<uint32_t>(before.size());
    for (const int w : before) {
      SLUICE_CHECK(w < static_cast<int>(i));
      successors[w].push_back(static_cast<uint32_t>(i));
    }
  }
  for (size_t i = 0; i < n; ++i) {
    Instruction& instruction = plan->instructions[i];
    instruction.first_successor =
        static_cast<uint32_t>(plan->successors.size());
    instruction.num_successors = static_cast<uint32_t>(successors[i].size());
    plan->successors.insert(plan->successors.end(), successors[i].begin(),
                            successors[i].end());
  }
}

}  // namespace sluice
