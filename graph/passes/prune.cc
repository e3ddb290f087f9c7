#include <unordered_set>

#include "graph/passes/passes.h"

namespace sluice::passes {

void Prune(Graph& graph) {
  std::unordered_set<const Node*> needed;
  std::vector<const Node*> stack;
  auto need = [&](const Node* node) {
    if (needed.insert(node).second) stack.push_back(node);
  };
  for (const auto& node : graph.nodes()) {
    if (node->op().sink || node->name() == kTargets) need(node.get());
  }
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    for (const Output& input : node->inputs()) need(&input.node());
    for (const Node* control : node->control_inputs()) need(control);
  }
  graph.Remove([&](const Node& node) { return !needed.contains(&node); });
}

}  // namespace sluice::passes
