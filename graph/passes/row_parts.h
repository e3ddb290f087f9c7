// What SpreadVariables does by rows, piece by piece: the nodes that stand for
// one, rows of what is whole, and wholes of what is in pieces. Internal to
// graph/passes.
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
// operands are scalars: its elements are alike, or drawn for their places.
bool IsOfShape(const Node& node);

Shape WithRows(Shape shape, int64_t rows);

// Of a constant's value: a view, where Graph::Constant would copy it.
Output ConstantRows(Graph& graph, const Tensor& whole, int64_t begin,
                    int64_t end);

// Nodes have to be visited in the order that it was made with, each being left
// as it is.
class RowParts {
 public:
  RowParts(Graph& graph, const std::vector<Node*>& order);

  const RowDivision& division() const { return division_; }

  // The nodes that stand for one that the division has, in the pieces' order.
  void Set(const Node& node, std::vector<Node*> parts);
  const std::vector<Node*>& Of(const Node& node) const {
    return parts_.at(&node);
  }

  // Makes them, of a node that is computed, or updates, element by element.
  void Divide(const Node& node);

  // Has a node that is done once wait for all parts of what it waits for, and
  // read the whole of what it takes no pieces of: joined where the node is, and
  // after the writes that it comes after.
  void WantWholes(Node& node);

  // The writes of a variable that its user waits for, in order. None of what
  // was put in an operand's place.
  const std::vector<Node*>& WritesBefore(const Output& read,
                                         const Node& user) const;

 private:
  Output Whole(const Node& user, int i);
  Output PieceOf(const Node& user, int i, size_t piece);
  Output RowsOf(const Output& value, const RowPiece& piece, const Node& user);
  std::vector<Node*> ControlsOf(const Node& node, size_t piece) const;

  Graph& graph_;
  const RowDivision division_;
  // Of who reads a variable: the writes that it comes after. As it was before
  // parts took the place of these.
  std::map<std::pair<Output, const Node*>, std::vector<Node*>> before_;
  std::unordered_map<const Node*, std::vector<Node*>> parts_;
  // By what they are of and the writes that they come after: wholes by their
  // device, rows by the first one.
  std::map<std::tuple<Output, std::string, std::vector<Node*>>, Output> wholes_;
  std::map<std::tuple<Output, int64_t, std::vector<Node*>>, Output> rows_;
};

}  // namespace sluice::passes

#endif  // SLUICE_GRAPH_PASSES_ROW_PARTS_H_
