// Recomputation of activations (Chen et al. 2016, "Training Deep Nets with
// Sublinear Memory Cost"): the forward nodes are cut into segments, only what
// crosses a cut is kept for the gradient, and the rest of a segment is computed
// again when the gradient gets there. Costs at most one more forward pass; the
// gradients have the same bits, random ops included.
#ifndef SLUICE_GRAPH_RECOMPUTE_H_
#define SLUICE_GRAPH_RECOMPUTE_H_

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// Which forward nodes form a segment, and their second computation. Lives
// while gradients are built, and adds nodes to the graph.
class Recomputation {
 public:
  // `forward`: in topological order. Cuts are where few bytes cross, about the
  // square root of the number of nodes apart by bytes; unknown dimensions count
  // as 1. The last segment is never computed again: its gradient comes at once.
  explicit Recomputation(const std::vector<Node*>& forward);

  // The node to take the gradient of in place of `node`: its second
  // computation, which runs when `trigger`, the first gradient to arrive in its
  // segment, is there; or itself where all it has is kept.
  Node& Twin(Node& node, const Output& trigger);

  // Lets the users of kept values' second computations read the kept ones.
  // Call when all gradients are built.
  void Finish();

  int segments() const { return segments_; }

 private:
  bool Kept(const Output& output) const { return kept_.contains(output); }
  Node& Copy(Node& node, Node* trigger);

  int segments_ = 1;
  std::unordered_map<const Node*, int> segment_of_;
  std::set<Output> kept_;  // values that cross a cut
  std::unordered_map<int, Node*> triggers_;
  std::unordered_map<const Node*, Node*> twins_;
};

// Positions in [1, n) before which to cut a chain of n values: `bytes[i]` is
// what node i produces, `crossing[i]` the bytes that live across the boundary
// before node i. Chosen so that the sum of what crosses and the largest
// segment together are least, among greedy cuts by size.
std::vector<int> ChooseCuts(const std::vector<int64_t>& bytes,
                            const std::vector<int64_t>& crossing);

}  // namespace sluice

#endif  // SLUICE_GRAPH_RECOMPUTE_H_
