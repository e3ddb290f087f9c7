#include "graph/compile/dependencies.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "graph/compile/memory_plan.h"

namespace sluice {
namespace {

// All that each instruction waits for, over others.
std::vector<std::set<int>> AllBefore(const Waits& waits) {
  std::vector<std::set<int>> before(waits.size());
  for (size_t i = 0; i < waits.size(); ++i) {
    for (const int w : waits[i]) {
      before[i].insert(w);
      before[i].insert(before[w].begin(), before[w].end());
    }
  }
  return before;
}

TEST_CASE("who writes over a buffer comes after all who touched it") {
  std::mt19937 random(5);
  const auto below = [&random](int n) {
    return std::uniform_int_distribution<int>(0, n - 1)(random);
  };
  int pairs = 0, ordered_before = 0;
  for (int round = 0; round < 200; ++round) {
    const int n = 2 + below(30);
    std::vector<std::vector<int>> touched;
    std::vector<BufferRequest> requests;
    Waits waits(n);
    for (int writer = 0; writer < n; ++writer) {
      std::vector<int> users = {writer};
      for (int i = writer + 1; i < std::min(n, writer + 8); ++i) {
        if (below(3) != 0) continue;
        users.push_back(i);
        waits[i].push_back(writer);  // it reads what that one wrote
      }
      requests.push_back(
          {static_cast<size_t>(64 * (1 + below(6))), writer, users.back()});
      touched.push_back(users);
    }
    const MemoryPlan memory = PlanMemory(requests);
    std::vector<ArenaUse> uses;
    for (int b = n - 1; b >= 0; --b) {  // in any order
      uses.push_back({memory.offsets[b], memory.offsets[b] + requests[b].bytes,
                      &touched[b]});
    }
    const auto by_data = AllBefore(waits);
    AddReuseWaits(uses, &waits);
    const auto before = AllBefore(waits);
    for (const ArenaUse& a : uses) {
      for (const ArenaUse& b : uses) {
        if (a.end <= b.begin || b.end <= a.begin) continue;
        const int writer = b.touched->front();
        if (a.touched->back() >= writer) continue;
        for (const int user : *a.touched) {
          ++pairs;
          ordered_before += by_data[writer].contains(user) ? 1 : 0;
          REQUIRE(before[writer].contains(user));
        }
      }
    }
  }
  CHECK(pairs - ordered_before > 1000);  // else the rounds show nothing
}

TEST_CASE("dependencies and successors of a Plan are each other's") {
  Plan plan;
  plan.instructions.resize(4);
  WriteDependencies({{}, {0, 0}, {}, {2, 1, 2}}, &plan);
  std::vector<int> dependencies;
  std::vector<std::vector<uint32_t>> successors;
  for (const Instruction& instruction : plan.instructions) {
    dependencies.push_back(static_cast<int>(instruction.dependencies));
    const auto begin = plan.successors.begin() + instruction.first_successor;
    successors.emplace_back(begin, begin + instruction.num_successors);
  }
  CHECK(dependencies == std::vector<int>{0, 1, 0, 2});
  CHECK(successors == std::vector<std::vector<uint32_t>>{{1}, {3}, {3}, {}});
}

TEST_CASE("dataflow pays for many small instructions beside each other") {
  const Waits apart(20), few(4);
  Waits chain(20);
  for (int i = 1; i < 20; ++i) chain[i] = {i - 1};
  const auto each = [](size_t n, double bytes) {
    return std::vector<double>(n, bytes);
  };
  CHECK(DataflowPays(each(20, 100), apart));
  CHECK_FALSE(DataflowPays(each(20, 100), chain));
  CHECK_FALSE(DataflowPays(each(20, 1e6), apart));  // each has all threads
  CHECK_FALSE(DataflowPays(each(4, 100), few));
}

}  // namespace
}  // namespace sluice
