// Variables that are written in the same step as they are differentiated:
// gradients are of the values that the forward pass has read.
#ifndef SLUICE_GRAPH_PINNED_READS_H_
#define SLUICE_GRAPH_PINNED_READS_H_

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// A read of a variable is of the value that the writes it depends on have left
// (graph/ops/state.h); what a gradient rule builds depends on others than its
// node. So it has a copy of what the node has read. Lives while gradients are
// built.
class PinnedReads {
 public:
  // Of what these need: what is differentiated, and its seeds.
  explicit PinnedReads(const std::vector<Output>& given);

  // Whether that is a variable which is written.
  bool Concerns(const Output& variable) const {
    return written_.contains(variable);
  }
  // What `node`, which has it as an input, reads of such a variable.
  Output Of(const Node& node, const Output& variable);
  // The inputs of a node with those in place of such variables.
  std::vector<Output> InputsOf(const Node& node);
  // The same for what has been added to the graph from node number `begin` on,
  // for the sake of `node`, and for `outputs`.
  void Pin(const Node& node, size_t begin, std::vector<Output>* outputs);

 private:
  void Replace(const Node& node, Output* output);

  std::set<Output> written_;
  std::map<std::pair<const Node*, Output>, Output> reads_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_PINNED_READS_H_
