#include "graph/passes/variable_writes.h"

#include <algorithm>
#include <iterator>

#include "graph/traversal.h"

namespace sluice {

VariableWrites::VariableWrites(const std::vector<Node*>& order) {
  for (Node* node : order) {
    place_[node] = static_cast<int>(place_.size());
    for (int i = 0; i < node->mutates(); ++i) {
      writes_of_[&node->input(i).node()].push_back(node);
    }
  }
}

std::vector<Node*> VariableWrites::Before(const Output& x,
                                          const Node& user) const {
  const auto found = writes_of_.find(&x.node());
  if (found == writes_of_.end()) return {};
  const std::vector<Node*>& writes = found->second;
  const int first = place_.at(writes[0]);
  std::vector<const Node*> awaited;
  ForEachDependency(user, [&](const Node& from) { awaited.push_back(&from); });
  const auto seen = Needed(awaited, [&](const Node& node) {
    const auto place = place_.find(&node);  // nodes added since have none
    return place == place_.end() || place->second >= first;
  });
  std::vector<Node*> before;
  std::copy_if(writes.begin(), writes.end(), std::back_inserter(before),
               [&](const Node* write) { return seen.contains(write); });
  return before;
}

}  // namespace sluice
