#include "graph/passes/variable_writes.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

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
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> stack = {&user};
  const auto visit = [&](const Node& from) {
    const auto place = place_.find(&from);  // nodes added since have none
    if (place != place_.end() && place->second < first) return;
    if (seen.insert(&from).second) stack.push_back(&from);
  };
  while (!stack.empty()) {
    const Node& node = *stack.back();
    stack.pop_back();
    for (const Output& input : node.inputs()) visit(input.node());
    for (const Node* control : node.control_inputs()) visit(*control);
  }
  std::vector<Node*> before;
  std::copy_if(writes.begin(), writes.end(), std::back_inserter(before),
               [&](const Node* write) { return seen.contains(write); });
  return before;
}

}  // namespace sluice
