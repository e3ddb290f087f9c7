// Recomputation of activations: the gradient reads second computations of some
// values of the forward pass, which run when it gets there, so that the first
// values need not be kept. The second computations are of the same nodes,
// random ops included, so without fusion the gradients have the same bits. With
// it they agree to rounding: second computations may be fused differently, and
// a fused sum adds in another order than one that is not, as in half precision
// a fused node rounds once where its parts round several times. So do gradients
// of gradients, whose terms are summed in another order.
//
//   kAll    (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")
//           cuts the forward nodes into segments and keeps what crosses a cut.
//           Costs at most one more forward pass.
//   kNorms  computes normalised tensors again, and what is elementwise behind
//           them. Costs a pass over memory for each.
//
// An op with OpDef::again is not run again but rebuilt by it: a normalisation's
// statistics are kept.
//
// If a step feeds the first value, it feeds the second, too (ExtractStep).
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

// Chooses the forward values that are computed again, and builds their second
// computation. Lives while gradients are built; adds nodes to the graph.
class Recomputation {
 public:
  // `forward`: the nodes in topological order. Unknown dimensions count as 1.
  // `pinned` provides the reads of variables; it is not owned.
  Recomputation(const std::vector<Node*>& forward, Recompute which,
                PinnedReads& pinned);

  // The node to differentiate in place of `node`: a copy whose operands and
  // results are second computations, which run once `trigger`, a gradient of
  // an output of `node`, is computed; or `node` itself if all of them are kept.
  Node& Twin(Node& node, const Output& trigger);

  // Makes users of second computations of kept values read the kept values.
  // Call it when all gradients are built.
  void Finish();

 private:
  // The second computation of a node, with those of what it needs.
  Node& Copy(Node& node, Node* trigger);
  // Of it alone: what it needs has one.
  void CopyAlone(Node& node, Node* trigger);

  PinnedReads& pinned_;
  std::set<Output> again_;  // the values computed again; others are kept
  std::unordered_map<const Node*, Node*> twins_;
  std::map<Output, Output> shortcuts_;  // by OpDef::again, of twins' outputs
};

// Whether `node` is a second computation of `first`, or of first's output 0
// (OpDef::again).
bool Recomputes(const Node& node, const Node& first);

// Positions in [1, n) before which to cut a chain of n values: `bytes[i]` is
// what node i produces, `crossing[i]` the bytes that live across the boundary
// before node i. Chosen so that the sum of what crosses and the largest
// segment together are least, among greedy cuts by size.
std::vector<int> ChooseCuts(const std::vector<int64_t>& bytes,
                            const std::vector<int64_t>& crossing);

}  // namespace sluice

#endif  // SLUICE_GRAPH_RECOMPUTE_H_
