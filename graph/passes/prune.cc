#include "graph/passes/passes.h"
#include "graph/traversal.h"

namespace sluice::passes {

void Prune(Graph& graph) {
  std::vector<const Node*> kept;
  for (const auto& node : graph.nodes()) {
    if (node->op().sink || node->name() == kTargets) kept.push_back(node.get());
  }
  const auto needed = Needed(kept);
  graph.Remove([&](const Node& node) { return !needed.contains(&node); });
}

}  // namespace sluice::passes
