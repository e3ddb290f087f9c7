// Variables that are written in the same step in which they are differentiated:
// gradients must use the values that the forward pass has read.
#ifndef SLUICE_GRAPH_PINNED_READS_H_
#define SLUICE_GRAPH_PINNED_READS_H_

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// A read of a variable sees the value left by the writes that the reader
// depends on (graph/ops/state.h). The nodes that a gradient rule builds depend
// on other writes than the differentiated node, so they get a copy of what that
// node has read. A copy's origin is the name of that node, so that the copy
// waits for no more than the node where something is fed (ExtractStep). Lives
// while gradients are built.
class PinnedReads {
 public:
  // Finds the variables written by nodes that `given` needs: the outputs to be
  // differentiated, and their seeds.
  explicit PinnedReads(const std::vector<Output>& given);

  // Whether `variable` is a variable that is written.
  bool Concerns(const Output& variable) const {
    return written_.contains(variable);
  }
  // A copy of the value that `node` reads of `variable`, one of its inputs.
  Output Of(const Node& node, const Output& variable);
  // The inputs of a node, with such copies in place of written variables.
  std::vector<Output> InputsOf(const Node& node);
  // Replaces written variables by such copies in the nodes added to the graph
  // for `node`, from node number `begin` on, and in `outputs`.
  void Pin(const Node& node, size_t begin, std::vector<Output>* outputs);

  // The node of `graph` that has read what `node`, of the same graph or a part
  // of it, is a copy of; null where `node` is no such copy.
  static const Node* ReaderOf(const Node& node, const Graph& graph);

 private:
  void Replace(const Node& node, Output* output);

  std::set<Output> written_;
  std::map<std::pair<const Node*, Output>, Output> reads_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_PINNED_READS_H_
