// Helpers of SpreadVariables, which divides nodes by rows: the nodes that stand
// for a divided one, rows of whole tensors, and tensors joined from pieces.
// Internal to graph/passes.
#ifndef SLUICE_GRAPH_PASSES_ROW_PARTS_H_
#define SLUICE_GRAPH_PASSES_ROW_PARTS_H_

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/row_division.h"
#include "graph/row_pieces.h"

namespace sluice::passes {

// A node of the same origin that does a part of what `like` does.
Node& AddPart(const Node& like, const OpDef& op, Attributes attrs,
              std::vector<Output> inputs, const TensorType& type,
              const std::string& device);

// Whether operand 0 of a node is its output's shape, a constant, and its other
// operands are scalars, so that its elements are all equal or drawn by their
// position.
bool IsOfShape(const Node& node);

Shape WithRows(Shape shape, int64_t rows);

// A constant of rows [begin, end) of `whole`, a constant's value: a view, where
// Graph::Constant would copy.
Output ConstantRows(Graph& graph, const Tensor& whole, int64_t begin,
                    int64_t end);

// The parts of divided nodes. Nodes must be visited in the order given to the
// constructor, and each must stay as it is.
class RowParts {
 public:
  RowParts(Graph& graph, const std::vector<Node*>& order);

  const RowDivision& division() const { return division_; }

  // Set and Of: the nodes that stand for a divided node, in the pieces' order.
  void Set(const Node& node, std::vector<Node*> parts);
  const std::vector<Node*>& Of(const Node& node) const {
    return parts_.at(&node);
  }

  // Makes the parts of a node that computes or updates element by element.
  void Divide(const Node& node);

  // Makes a node that is done once wait for all parts of the nodes it waits
  // for, and read the whole of operands that it takes no pieces of, joined on
  // its device and after the writes that it comes after.
  void WantWholes(Node& node);

  // The writes of a variable that its user waits for, in order. Empty for an
  // output that was put in an operand's place.
  const std::vector<Node*>& WritesBefore(const Output& read,
                                         const Node& user) const;

 private:
  Output Whole(const Node& user, int i);
  Output PieceOf(const Node& user, int i, size_t piece);
  Output RowsOf(const Output& value, const RowPiece& piece, const Node& user);
  std::vector<Node*> ControlsOf(const Node& node, size_t piece) const;

  Graph& graph_;
  const RowDivision division_;
  // By variable and reader: the writes that the reader comes after, from before
  // parts took their place.
  std::map<std::pair<Output, const Node*>, std::vector<Node*>> before_;
  std::unordered_map<const Node*, std::vector<Node*>> parts_;
  // Joined tensors by value, device and the writes that they come after; rows
  // by value, begin, end and those writes.
  std::map<std::tuple<Output, std::string, std::vector<Node*>>, Output> wholes_;
  std::map<std::tuple<Output, int64_t, int64_t, std::vector<Node*>>, Output>
      rows_;
};

}  // namespace sluice::passes

#endif  // SLUICE_GRAPH_PASSES_ROW_PARTS_H_
