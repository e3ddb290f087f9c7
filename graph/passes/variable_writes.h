// Finds the writes of a variable that a node comes after, for passes that
// replace the node's read by another, which must wait for them as well.
#ifndef SLUICE_GRAPH_PASSES_VARIABLE_WRITES_H_
#define SLUICE_GRAPH_PASSES_VARIABLE_WRITES_H_

#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// Stays valid while nodes are added and operands replaced, as long as the nodes
// that it was made from keep their dependencies on each other.
class VariableWrites {
 public:
  // `order`: a graph's nodes in an order that respects all edges.
  explicit VariableWrites(const std::vector<Node*>& order);

  // The writes of x, if it is a variable, that `user` depends on, in order.
  // Looks at what stands between the first of them and the user.
  std::vector<Node*> Before(const Output& x, const Node& user) const;

 private:
  std::unordered_map<const Node*, int> place_;
  std::unordered_map<const Node*, std::vector<Node*>> writes_of_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_PASSES_VARIABLE_WRITES_H_
