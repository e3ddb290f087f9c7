#include "graph/traversal.h"

#include <algorithm>
#include <numeric>

namespace sluice {

Countdown::Countdown(const Graph& graph) : graph_(graph) {
  int ids = 0;
  for (const auto& node : graph.nodes()) ids = std::max(ids, node->id() + 1);
  waiting_.resize(ids);
  begin_.resize(ids + 1);
  for (const auto& node : graph.nodes()) {
    ForEachDependency(*node, [&](const Node& from) {
      ++begin_[from.id() + 1];
      ++waiting_[node->id()];
    });
  }
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  users_.resize(begin_.back());
  std::vector<int> end = begin_;
  for (const auto& node : graph.nodes()) {
    ForEachDependency(*node, [&](const Node& from) {
      users_[end[from.id()]++] = node.get();
    });
  }
}

}  // namespace sluice
