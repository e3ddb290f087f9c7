// Ops that order, feed, fetch and move rather than compute.
#ifndef SLUICE_GRAPH_OPS_CONTROL_H_
#define SLUICE_GRAPH_OPS_CONTROL_H_

#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// Does nothing, after its control inputs.
Operation NoOp(Graph& graph, const std::vector<Operation>& after,
               const std::string& name = "no_op");
// Runs all of `operations`.
Operation Group(Graph& graph, const std::vector<Operation>& operations,
                const std::string& name = "group");
// x itself, after `operations`.
Output WithDependencies(const std::vector<Operation>& operations, Operand x);

// x unchanged, as a node of its own.
Output Identity(Operand x, const std::string& name = "identity");
// x unchanged; no gradient flows through.
Output StopGradient(Operand x);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_CONTROL_H_
