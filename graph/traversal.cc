#include "graph/traversal.h"

#include <algorithm>
#include <numeric>

namespace sluice {

std::vector<Node*> MembersOf(const std::vector<Node*>& operations) {
  std::vector<Node*> members;
  std::unordered_set<const Node*> seen;
  // Depth first, without recursion: groups of groups may be deep.
  std::vector<Node*> open(operations.rbegin(), operations.rend());
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    const bool shows = node->op().view && !node->op().runs;
    if (!shows && !node->Is("NoOp")) {
      members.push_back(node);
      continue;
    }
    const std::vector<Node*>& waits = node->control_inputs();
    open.insert(open.end(), waits.rbegin(), waits.rend());
    if (shows) open.push_back(&node->input(0).node());
  }
  return members;
}

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
