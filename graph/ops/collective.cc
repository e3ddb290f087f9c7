#include "graph/ops/collective.h"

#include "graph/ops/tables.h"

namespace sluice {
namespace {

// That was added last; null where there is none.
Node* LastCollective(const Graph& graph) {
  const auto& nodes = graph.nodes();
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if ((*node)->op().collective) return node->get();
  }
  return nullptr;
}

constexpr OpDef kCollectiveOps[] = {
    {.name = "AllReduce",
     .doc = "The sum of x over the workers of a job; its mean with `mean`.",
     .inputs = {{"x"}},
     .attrs = {{"mean", false}},
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {AllReduce(dy[0], node.attrs().Bool("mean") ? Reduction::kMean
                                                          : Reduction::kSum)};
     },
     .stateful = true,
     .collective = true,
     .inplace = {0},
     .probes = {{.inputs = {{.shape = {2, 3}}}},
                {.inputs = {{.shape = {2, 3}}}, .attrs = {{"mean", true}}},
                {.inputs = {{.shape = {0, 3}}}}}},
    // What a step makes of it (passes::StartCollectives).
    {.name = "AllReduceStart",
     .doc = "Begins the AllReduce of x; y is where its result will be.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .attrs = {{"mean", false}},
     .gradient = NotDifferentiable,
     .stateful = true,
     .collective = true,
     .wait = "AllReduceWait",
     .inplace = {0}},
    {.name = "AllReduceWait",
     .doc = "Waits until x has been reduced; y is x.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .gradient = NotDifferentiable,
     .stateful = true,
     .view = true,
     .runs = true},
};

}  // namespace

std::span<const OpDef> CollectiveOps() {
  return kCollectiveOps;
}

Output AllReduce(Operand x, Reduction how, const std::string& name) {
  Node* const before = LastCollective(x.graph());
  Node& node = x.graph().Add(
      {"AllReduce", {x}, {{"mean", how == Reduction::kMean}}, name});
  if (before != nullptr) node.AddControlInput(before);
  return node.output(0);
}

}  // namespace sluice
