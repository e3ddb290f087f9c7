#include <fmt/format.h>

#include "graph/passes/passes.h"
#include "graph/traversal.h"

namespace sluice::passes {

// Each collective depends on the one before it (OrderVariables), so that the
// last is behind all.
Status CommitTogether(Graph& graph) {
  Node* last = nullptr;
  for (Node* node : graph.TopologicalOrder()) {
    if (node->op().collective) last = node;
  }
  if (last == nullptr) return {};
  const auto before = Needed({last}, [](const Node&) { return true; });
  for (const auto& node : graph.nodes()) {
    if (node->mutates() == 0) continue;
    if (before.contains(node.get())) {
      return Unimplemented(fmt::format(
          "{}: it updates '{}' before workers have met for the last time in "
          "the step, which in an elastic job is too early ({})",
          node->Describe(), node->input(0).name(), node->location()));
    }
    node->AddControlInput(last);
  }
  return {};
}

}  // namespace sluice::passes
