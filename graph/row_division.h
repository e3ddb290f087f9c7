// Which nodes of a graph are done piece by piece, because a variable's rows are
// on several devices (graph/row_pieces.h). For the pass that divides them
// (passes::SpreadVariables) and for callers that choose such variables.
#ifndef SLUICE_GRAPH_ROW_DIVISION_H_
#define SLUICE_GRAPH_ROW_DIVISION_H_

#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// Requires concrete shapes. It does not see later changes of the graph.
class RowDivision {
 public:
  // `order`: a graph's nodes, each after the nodes that it needs.
  explicit RowDivision(const std::vector<Node*>& order);

  // The variable beside whose pieces the node is done piece by piece; null: it
  // is done once. Nodes done so are the variables themselves, their updates,
  // and elementwise nodes beside one, of an operand that is in pieces.
  const Node* Of(const Node& node) const {
    const auto found = of_.find(&node);
    return found == of_.end() ? nullptr : found->second;
  }
  // The variable whose pieces a value's pieces are beside; null: it is whole.
  const Node* Of(const Output& value) const {
    return value.index() == 0 ? Of(value.node()) : nullptr;
  }
  // Whether the node takes operand i, which is in pieces, a piece at a time;
  // otherwise it needs the whole.
  bool TakesPieces(const Node& node, int i) const;

 private:
  const Node* Beside(const Node& node) const;

  std::unordered_map<const Node*, const Node*> of_;
};

// Whether two spread variables are cut at the same rows, with their pieces on
// the same devices.
bool SpreadAlike(const Node& a, const Node& b);

// Whether the operand has a row of its own for each row of `shape`; otherwise
// it is the same for all rows, as scalar operands are.
bool HasRowsOf(const Shape& operand, const Shape& shape);

// Whether a graph reads and updates a variable by rows only, as a table.
bool UsedByRowsAlone(const Graph& graph, const Node& variable);
// Whether `user` reads or updates its operand i, a variable, by rows only.
bool UsesRowsAlone(const Node& user, int i);

}  // namespace sluice

#endif  // SLUICE_GRAPH_ROW_DIVISION_H_
