// Recomputation of activations: of some values of the forward pass the gradient
// reads second computations, which run when it gets there, so that the first
// need not be kept. The second computations are of the same nodes, random ops
// included, so the gradients have the same bits, but for two cases in which
// they agree to rounding: kAll in half precision with fusion, since what is
// computed twice is fused otherwise, and a fused node rounds to half once where
// its parts round several times; and gradients of gradients, whose terms are
// summed in another order.
//
//   kAll    (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")
//           cuts the forward nodes into segments and keeps what crosses a cut.
//           Costs at most one more forward pass.
//   kNorms  computes normalised tensors again, and what is elementwise behind
//           them. Costs a pass over memory for each.
//
// An op whose record says how (OpDef::again) is not run again: a
// normalisation's statistics are kept.
//
// Where a first value is fed, the second is what is fed (ExtractStep).
#ifndef SLUICE_GRAPH_RECOMPUTE_H_
#define SLUICE_GRAPH_RECOMPUTE_H_

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "graph/autograd.h"
#include "graph/graph.h"
#include "graph/pinned_reads.h"

namespace sluice {

// Which forward values are computed again, and their second computation. Lives
// while gradients are built, and adds nodes to the graph.
class Recomputation {
 public:
  // `forward`: in topological order. Unknown dimensions count as 1. `pinned`
  // has what it reads of variables, and is not owned.
  Recomputation(const std::vector<Node*>& forward, Recompute which,
                PinnedReads& pinned);

  // The node to take the gradient of in place of `node`: one whose operands and
  // results are second computations, which run when `trigger`, a gradient of
  // the node's, is there; or itself where all it has is kept.
  Node& Twin(Node& node, const Output& trigger);

  // Lets those who read second computations of kept values read the kept ones.
  // Call when all gradients are built.
  void Finish();

 private:
  Node& Copy(Node& node, Node* trigger);

  PinnedReads& pinned_;
  std::set<Output> again_;  // the values computed again; others are kept
  std::unordered_map<const Node*, Node*> twins_;
  std::map<Output, Output> shortcuts_;  // by OpDef::again, of twins' outputs
};

// Whether `node` is a second computation of what `first` computes, or of its
// output 0 (OpDef::again).
bool Recomputes(const Node& node, const Node& first);

// Positions in [1, n) before which to cut a chain of n values: `bytes[i]` is
// what node i produces, `crossing[i]` the bytes that live across the boundary
// before node i. Chosen so that the sum of what crosses and the largest
// segment together are least, among greedy cuts by size.
std::vector<int> ChooseCuts(const std::vector<int64_t>& bytes,
                            const std::vector<int64_t>& crossing);

}  // namespace sluice

#endif  // SLUICE_GRAPH_RECOMPUTE_H_
