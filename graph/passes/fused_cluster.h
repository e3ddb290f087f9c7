// A cluster of elementwise nodes on its way to one Fused node.
#ifndef SLUICE_GRAPH_PASSES_FUSED_CLUSTER_H_
#define SLUICE_GRAPH_PASSES_FUSED_CLUSTER_H_

#include <optional>
#include <vector>

#include "engine/semantics/fused_program.h"
#include "graph/passes/node_merger.h"

namespace sluice::passes {

// Elementwise nodes over one shape and floating dtype. Steps number values as
// in a FusedProgram.
struct FusedCluster {
  Node* root = nullptr;        // the node that the outputs belong to
  std::vector<Node*> members;  // root included
  std::vector<Output> inputs;  // all different
  std::vector<FusedStep> steps;
  std::vector<int> outputs;  // the step behind each output of root

  const Shape& shape() const { return root->output_type(0).shape; }
  DType dtype() const { return root->output_type(0).dtype; }
  // Whether an input is read element by element rather than broadcast.
  bool ReadsWhole(const Output& input) const;
  FusedProgram Program() const;
  // How the merger makes it one node. Outputs of members other than the root
  // must be unused outside.
  NodeMerger::Merged AsNode() const;
};

// The cluster of a single node: a Fused node, or one whose op is a scalar
// function, with the comparisons that only choose for it. nullopt for other
// nodes, and if the cluster would exceed the limits of a program.
std::optional<FusedCluster> ClusterOf(Node& node, const NodeMerger& merger);

// Joins `producer` and `consumer` into one cluster, with consumer's root.
// `kept`: the outputs of producer that stay outputs; they follow consumer's.
FusedCluster Joined(const FusedCluster& producer, const FusedCluster& consumer,
                    const std::vector<int>& kept);

}  // namespace sluice::passes

#endif  // SLUICE_GRAPH_PASSES_FUSED_CLUSTER_H_
