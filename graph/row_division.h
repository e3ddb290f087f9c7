// What of a graph is done by rows where those of a variable are on several
// devices (graph/row_pieces.h): for the pass that does so
// (passes::SpreadVariables), and for who chooses such variables.
#ifndef SLUICE_GRAPH_ROW_DIVISION_H_
#define SLUICE_GRAPH_ROW_DIVISION_H_

#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// Of concrete shapes. It does not see later changes of the graph.
class RowDivision {
 public:
  // `order`: a graph's nodes, each after what it needs.
  explicit RowDivision(const std::vector<Node*>& order);

  // The variable beside whose pieces the node is done piece by piece; null: it
  // is done once. Such are those variables, what updates them, and what is
  // computed beside one, element by element, of something that is in pieces.
  const Node* Of(const Node& node) const {
    const auto found = of_.find(&node);
    return found == of_.end() ? nullptr : found->second;
  }
  // The same of a value: whose pieces it is in.
  const Node* Of(const Output& value) const {
    return value.index() == 0 ? Of(value.node()) : nullptr;
  }
  // Whether the node takes of operand i, which is in pieces, a piece at a time:
  // else it wants the whole.
  bool TakesPieces(const Node& node, int i) const;

 private:
  const Node* Beside(const Node& node) const;

  std::unordered_map<const Node*, const Node*> of_;
};

// Whether the pieces of one spread variable are where those of the other are.
bool SpreadAlike(const Node& a, const Node& b);

// Whether the operand has, for each row of a shape, one of its own: else it is
// the same for all of them, as the scalar operands are.
bool HasRowsOf(const Shape& operand, const Shape& shape);

// Whether a graph reads and updates a variable by rows alone: it is a table.
bool UsedByRowsAlone(const Graph& graph, const Node& variable);
// Of one of its users: whether that does, as operand i.
bool UsesRowsAlone(const Node& user, int i);

}  // namespace sluice

#endif  // SLUICE_GRAPH_ROW_DIVISION_H_
