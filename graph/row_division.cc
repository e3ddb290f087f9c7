#include "graph/row_division.h"

#include <algorithm>
#include <memory>

#include "graph/ops/element_updates.h"
#include "graph/row_pieces.h"

namespace sluice {

RowDivision::RowDivision(const std::vector<Node*>& order) {
  for (const Node* node : order) {
    if (const Node* const variable = Beside(*node)) of_[node] = variable;
  }
}

const Node* RowDivision::Beside(const Node& node) const {
  if (SpreadsRows(node)) return &node;
  if (node.num_inputs() == 0) return nullptr;
  if (node.mutates() > 0) {
    const Node* const first = Of(node.input(0));
    if (first == nullptr) return nullptr;
    const bool alike = std::all_of(
        node.inputs().begin(), node.inputs().begin() + node.mutates(),
        [&](const Output& variable) {
          const Node* const of = Of(variable);
          return of != nullptr && SpreadAlike(*of, *first);
        });
    const bool parts =
        node.op().scatters || node.IsInitializer() || UpdatesByElements(node);
    return alike && parts ? first : nullptr;
  }
  if (!node.op().elementwise || node.op().stateful || node.num_outputs() != 1) {
    return nullptr;
  }
  for (const Output& input : node.inputs()) {
    const Node* const of = Of(input);
    if (of != nullptr && node.device() == of->device() &&
        HasRowsOf(of->output_type(0).shape, node.output_type(0).shape)) {
      return of;
    }
  }
  return nullptr;
}

bool RowDivision::TakesPieces(const Node& node, int i) const {
  const Output& operand = node.input(i);
  const Node* const of = Of(operand);
  if (i < node.mutates()) return true;
  const Node* const beside = Of(node);
  if (beside == nullptr) {
    // Rows are taken of the variable itself.
    return of == &operand.node() && UsesRowsAlone(node, i);
  }
  return !node.op().scatters && !node.IsInitializer() && of != nullptr &&
         SpreadAlike(*of, *beside) &&
         HasRowsOf(operand.shape(), node.output_type(0).shape);
}

bool SpreadAlike(const Node& a, const Node& b) {
  if (&a == &b) return true;
  const std::vector<RowPiece> one = PiecesOf(a), other = PiecesOf(b);
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const RowPiece& x, const RowPiece& y) {
                      return x.device == y.device && x.begin == y.begin &&
                             x.end == y.end;
                    });
}

bool HasRowsOf(const Shape& operand, const Shape& shape) {
  return operand.rank() == shape.rank() && shape.rank() > 0 &&
         operand[0] == shape[0];
}

bool UsesRowsAlone(const Node& user, int i) {
  if (user.IsInitializer()) return i < user.mutates();
  if (user.op().scatters && i < user.mutates()) return true;
  return i == 0 && user.op().rows_taken != nullptr &&
         user.op().rows_taken(user).valid();
}

bool UsedByRowsAlone(const Graph& graph, const Node& variable) {
  const auto is_update = [&](const Node& node) {
    return node.mutates() > 0 &&
           std::any_of(node.inputs().begin(),
                       node.inputs().begin() + node.mutates(),
                       [&](const Output& x) { return &x.node() == &variable; });
  };
  for (const std::unique_ptr<Node>& node : graph.nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Node& from = node->input(i).node();
      const bool rows = &from != &variable || UsesRowsAlone(*node, i);
      if (!rows || is_update(from)) return false;
    }
  }
  return true;
}

}  // namespace sluice
