#include "graph/passes/row_parts.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "graph/ops/array.h"
#include "graph/ops/slice.h"
#include "graph/passes/variable_writes.h"

namespace sluice::passes {

Node& AddPart(const Node& like, const OpDef& op, Attributes attrs,
              std::vector<Output> inputs, const TensorType& type,
              const std::string& device) {
  Graph& graph = like.graph();
  const std::string name =
      graph.UniqueName(graph.scope().empty() ? like.name() + "/rows" : "rows");
  Node& node = graph.AddRaw(name, like.origin(), op, std::move(attrs),
                            std::move(inputs), {type});
  node.set_device(device);
  node.set_location(like.location());
  return node;
}

bool IsOfShape(const Node& node) {
  return node.num_inputs() > 0 &&
         std::string_view(node.op().inputs[0].name) == "shape" &&
         node.input(0).node().IsConstant() &&
         std::all_of(
             node.inputs().begin() + 1, node.inputs().end(),
             [](const Output& input) { return input.shape().scalar(); });
}

Shape WithRows(Shape shape, int64_t rows) {
  shape.set(0, rows);
  return shape;
}

Output ConstantRows(Graph& graph, const Tensor& whole, int64_t begin,
                    int64_t end) {
  return graph.Add({"Const", {}, {{"value", whole.Rows(begin, end)}}, "rows"})
      .output(0);
}

RowParts::RowParts(Graph& graph, const std::vector<Node*>& order)
    : graph_(graph), division_(order) {
  const VariableWrites writes(order);
  for (const Node* node : order) {
    for (int i = node->mutates(); i < node->num_inputs(); ++i) {
      const Output& read = node->input(i);
      std::vector<Node*> before = writes.Before(read, *node);
      if (!before.empty()) before_[{read, node}] = std::move(before);
    }
  }
}

const std::vector<Node*>& RowParts::WritesBefore(const Output& read,
                                                 const Node& user) const {
  static const std::vector<Node*> none;
  const auto found = before_.find({read, &user});
  return found == before_.end() ? none : found->second;
}

void RowParts::Set(const Node& node, std::vector<Node*> parts) {
  parts_[&node] = std::move(parts);
}

void RowParts::Divide(const Node& node) {
  const std::vector<RowPiece> pieces = PiecesOf(*division_.Of(node));
  std::vector<Node*> parts;
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    std::vector<Output> inputs;
    for (int i = 0; i < node.num_inputs(); ++i) {
      inputs.push_back(PieceOf(node, i, piece));
    }
    const TensorType type = {node.output_type(0).dtype,
                             WithRows(node.output_type(0).shape,
                                      pieces[piece].end - pieces[piece].begin)};
    Node& part = AddPart(node, node.op(), node.attrs(), std::move(inputs), type,
                         pieces[piece].device);
    part.set_control_inputs(ControlsOf(node, piece));
    parts.push_back(&part);
  }
  Set(node, std::move(parts));
}

void RowParts::WantWholes(Node& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    const bool joined = division_.Of(node.input(i)) != nullptr &&
                        !division_.TakesPieces(node, i);
    if (joined) node.set_input(i, Whole(node, i));
  }
  std::vector<Node*> controls;
  for (Node* control : node.control_inputs()) {
    // An update becomes one that waits for its parts.
    if (control->mutates() > 0 || division_.Of(*control) == nullptr) {
      controls.push_back(control);
      continue;
    }
    const std::vector<Node*>& parts = parts_.at(control);
    controls.insert(controls.end(), parts.begin(), parts.end());
  }
  node.set_control_inputs(std::move(controls));
}

Output RowParts::Whole(const Node& user, int i) {
  const Output value = user.input(i);
  if (division_.Of(value) == nullptr) return value;
  const std::vector<Node*>& parts = parts_.at(&value.node());
  if (parts.size() == 1) return parts[0]->output(0);
  const std::vector<Node*>& writers = WritesBefore(value, user);
  Output& whole = wholes_[{value, user.device(), writers}];
  if (whole.valid()) return whole;
  std::vector<Output> all;
  for (Node* part : parts) all.push_back(part->output(0));
  const NameScope names(graph_, value.node().name());
  const DeviceScope there(graph_, user.device());
  whole = Concat(all, 0);
  for (Node* writer : writers) whole.node().AddControlInput(writer);
  return whole;
}

// What a part of the user, which is done by pieces, has for its operand i.
Output RowParts::PieceOf(const Node& user, int i, size_t piece) {
  const Output operand = user.input(i);
  if (division_.TakesPieces(user, i)) {
    return parts_.at(&operand.node())[piece]->output(0);
  }
  const Output whole = Whole(user, i);
  if (!HasRowsOf(operand.shape(), user.output_type(0).shape)) return whole;
  return RowsOf(whole, PiecesOf(*division_.Of(user))[piece], user);
}

// Cut where the value is, so that each piece alone travels.
Output RowParts::RowsOf(const Output& value, const RowPiece& piece,
                        const Node& user) {
  const std::vector<Node*>& writers = WritesBefore(value, user);
  Output& rows = rows_[{value, piece.begin, piece.end, writers}];
  if (rows.valid()) return rows;
  const NameScope names(graph_, value.node().name());
  const Shape shape = WithRows(value.shape(), piece.end - piece.begin);
  if (const Tensor* const whole = ConstantValue(value)) {
    rows = ConstantRows(graph_, *whole, piece.begin, piece.end);
  } else if (const Node& node = value.node();
             IsOfShape(node) && !node.op().stateful) {
    const std::vector<int64_t> dims(shape.begin(), shape.end());
    std::vector<Output> inputs = node.inputs();
    inputs[0] = graph_.Constant(Tensor::Vector<int64_t>(dims), "shape");
    Node& part = AddPart(node, node.op(), node.attrs(), std::move(inputs),
                         {value.dtype(), shape}, piece.device);
    part.set_control_inputs(node.control_inputs());
    rows = part.output(0);
  } else {
    const DeviceScope there(graph_, node.device());
    std::vector<int64_t> from(static_cast<size_t>(shape.rank()), 0);
    from[0] = piece.begin;
    rows = Slice(value, from, {shape.begin(), shape.end()});
    for (Node* writer : writers) rows.node().AddControlInput(writer);
  }
  return rows;
}

std::vector<Node*> RowParts::ControlsOf(const Node& node, size_t piece) const {
  const Node& beside = *division_.Of(node);
  std::vector<Node*> controls;
  for (Node* control : node.control_inputs()) {
    const Node* const of = division_.Of(*control);
    if (of == nullptr) {
      controls.push_back(control);
      continue;
    }
    const std::vector<Node*>& parts = parts_.at(control);
    // Of the same rows one is waited for.
    if (SpreadAlike(*of, beside)) {
      controls.push_back(parts[piece]);
    } else {
      controls.insert(controls.end(), parts.begin(), parts.end());
    }
  }
  return controls;
}

}  // namespace sluice::passes
