// Variables whose rows are on several devices (graph/row_pieces.h) become one
// variable a device, of the same origin. What reads rows asks each for those
// that it has, and joins them (graph/ops/counted_rows.cc); what updates rows
// becomes an update of each by its own; and a first value is made where it
// goes, some rows at a time, so that nowhere more is held than the piece. What
// updates all elements, or computes beside the variable with each, does so with
// each piece, and what reads the variable otherwise joins the pieces where it
// is (graph/passes/row_parts.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/catch_errors.h"
#include "engine/device.h"
#include "engine/semantics/random.h"
#include "graph/ops/array.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"
#include "graph/passes/passes.h"
#include "graph/passes/row_parts.h"
#include "graph/row_pieces.h"

namespace sluice::passes {
namespace {

// Of a first value, what is made at a time.
constexpr int64_t kChunkBytes = 4 << 20;
// But no more chunks of a piece, which are nodes, than about this.
constexpr int64_t kMostChunks = 64;

// A variable and what became of it.
struct Spread {
  std::vector<RowPiece> pieces;
  std::vector<Node*> variables;  // parallel
};

Error Wrong(const Node& node, const Node& variable) {
  return {Code::kUnimplemented,
          fmt::format("{}: the rows of '{}' are on several devices: it can be "
                      "updated by rows or element by element, together with "
                      "variables that are cut as it is ({})",
                      node.Describe(), variable.name(), node.location())};
}

// Rows are counted on CPUs; what counts them there would fetch a piece whole.
void WantCpus(const Node& node, const std::vector<RowPiece>& pieces) {
  for (const RowPiece& piece : pieces) {
    const Result<DeviceName> named = ParseDeviceName(piece.device);
    if (!named.ok() || named->type != DeviceType::kCuda) continue;
    throw Error(Code::kUnimplemented,
                fmt::format("{}: it takes rows of a table of which some are on "
                            "{}: put them on CPUs ({})",
                            node.Describe(), piece.device, node.location()));
  }
}

class Spreader {
 public:
  explicit Spreader(Graph& graph)
      : graph_(graph),
        order_(graph.TopologicalOrder()),
        parts_(graph, order_) {}

  void Run() {
    std::vector<Node*> order;
    size_t known = graph_.nodes().size();
    for (Node* node : order_) {
      Visit(*node);
      for (; known < graph_.nodes().size(); ++known) {
        order.push_back(graph_.nodes()[known].get());
      }
      order.push_back(node);
    }
    for (const auto& [node, parts] : updates_) {
      // Who waited for it waits for all of them.
      node->Become(OpTable::Global().Get("NoOp"), {}, {});
      node->set_output_types({});
      node->set_control_inputs(parts);
    }
    graph_.Renumber(order);
    Prune(graph_);
  }

 private:
  void Visit(Node& node) {
    if (SpreadsRows(node)) return Divide(node);
    const LocationScope location(graph_, node.location());
    const RowDivision& division = parts_.division();
    if (division.Of(node) != nullptr) return DividePieces(node);
    for (int i = 0; i < node.mutates(); ++i) {
      if (division.Of(node.input(i)) != nullptr) {
        throw Wrong(node, node.input(i).node());
      }
    }
    const auto of =
        spread_.find(node.num_inputs() > 0 ? &node.input(0).node() : nullptr);
    const bool gathers = of != spread_.end() && division.TakesPieces(node, 0);
    parts_.WantWholes(node);
    if (gathers) GatherPieces(node, of->second);
  }

  void DividePieces(Node& node) {
    if (node.op().scatters || node.IsInitializer()) {
      parts_.WantWholes(node);
      const Spread& of = spread_.at(&node.input(0).node());
      parts_.Set(node, node.op().scatters ? UpdateRows(node, of)
                                          : Initialize(node, of));
    } else {
      parts_.Divide(node);
    }
    if (node.mutates() > 0) updates_.emplace_back(&node, parts_.Of(node));
  }

  void Divide(Node& node) {
    Spread spread = {PiecesOf(node), {}};
    for (const RowPiece& piece : spread.pieces) {
      const TensorType type = {
          node.output_type(0).dtype,
          WithRows(node.output_type(0).shape, piece.end - piece.begin)};
      Attributes attrs = node.attrs();
      attrs.Set("shape", type.shape);
      attrs.Set("rows_over", "");
      spread.variables.push_back(
          &AddPart(node, node.op(), std::move(attrs), {}, type, piece.device));
    }
    parts_.Set(node, spread.variables);
    spread_[&node] = std::move(spread);
  }

  // --- Reads ---

  void GatherPieces(Node& node, const Spread& of) {
    const RowsTakenFn rows_taken = node.op().rows_taken;
    const Output taken = rows_taken(node);
    const NameScope names(graph_, node.name());
    if (of.pieces.size() == 1) {
      Node& gather = AddPart(node, node.op(), node.attrs(),
                             {of.variables[0]->output(0), taken},
                             node.output_type(0), of.pieces[0].device);
      gather.set_control_inputs(node.control_inputs());
      graph_.ReplaceUses(node.output(0), gather.output(0), /*controls=*/true);
      return;
    }
    WantCpus(node, of.pieces);
    std::vector<Operand> joined = {taken};
    std::vector<int64_t> ends;
    for (size_t i = 0; i < of.pieces.size(); ++i) {
      const Node& own = RowsOfPiece(taken, node, of, i);
      Node& gather = GatherCounted(of.variables[i]->output(0), own.output(0),
                                   own.output(2));
      gather.set_device(of.pieces[i].device);
      gather.set_control_inputs(node.control_inputs());
      joined.emplace_back(gather.output(0));
      ends.push_back(of.pieces[i].end);
    }
    const Node& all =
        graph_.Add({"JoinRows", std::move(joined), {{"ends", ends}}});
    graph_.ReplaceUses(node.output(0), all.output(0), /*controls=*/true);
  }

  // Which of some rows, an operand of `node`, are of a piece, and as many.
  Node& RowsOfPiece(const Output& rows, const Node& node, const Spread& of,
                    size_t i) {
    return ReadAs(node, rows,
                  graph_.Add({"RowsBetween",
                              {rows},
                              {{"begin", of.pieces[i].begin},
                               {"end", of.pieces[i].end},
                               {"limit", of.pieces.back().end}}}));
  }

  // What reads an operand of `node` in its place reads what the node does: it
  // waits for the same writes.
  Node& ReadAs(const Node& node, const Output& operand, Node& reader) {
    for (Node* writer : parts_.WritesBefore(operand, node)) {
      reader.AddControlInput(writer);
    }
    return reader;
  }

  Node& GatherCounted(const Output& params, const Output& rows,
                      const Output& count) {
    return graph_.Add({"GatherCounted", {params, rows, count}});
  }

  // --- Updates ---

  std::vector<Node*> UpdateRows(const Node& node, const Spread& of) {
    const NameScope names(graph_, node.name());
    const int rows_input = node.op().inputs.size() - 2;
    const Output rows = node.input(rows_input);
    Output slices = node.input(rows_input - 1);
    const Shape flat = WithRows(node.input(0).shape(), rows.shape().elements());
    if (of.pieces.size() > 1 && slices.shape() != flat) {
      const Output given = slices;
      slices = Reshape(given, flat);
      ReadAs(node, given, slices.node());
    }
    if (of.pieces.size() > 1) WantCpus(node, of.pieces);
    std::vector<Node*> updates;
    for (size_t i = 0; i < of.pieces.size(); ++i) {
      const std::string& device = of.pieces[i].device;
      std::vector<Output> inputs = node.inputs();
      for (int v = 0; v < node.mutates(); ++v) {
        inputs[static_cast<size_t>(v)] =
            spread_.at(&node.input(v).node()).variables[i]->output(0);
      }
      if (of.pieces.size() > 1) {
        const Node& own = RowsOfPiece(rows, node, of, i);
        Node& padded = graph_.Add({"PadRows", {own.output(0), own.output(2)}});
        padded.set_device(device);
        const auto at = static_cast<size_t>(rows_input);
        inputs[at] = padded.output(0);
        Node& gather = GatherCounted(slices, own.output(1), own.output(2));
        inputs[at - 1] = ReadAs(node, slices, gather).output(0);
      }
      Node& update = AddPart(node, node.op(), node.attrs(), std::move(inputs),
                             of.variables[i]->output_type(0), device);
      update.set_control_inputs(node.control_inputs());
      updates.push_back(&update);
    }
    return updates;
  }

  // --- First values ---

  // The last of each piece; each waits for the one before, so that their memory
  // can be one chunk's.
  std::vector<Node*> Initialize(const Node& node, const Spread& of) {
    const NameScope names(graph_, node.name());
    const TensorType& type = node.input(0).type();
    const Output value = node.input(1);
    const auto row_bytes =
        static_cast<int64_t>(WithRows(type.shape, 1).elements() *
                             static_cast<int64_t>(SizeOf(type.dtype)));
    std::vector<Node*> last;
    for (size_t i = 0; i < of.pieces.size(); ++i) {
      const RowPiece& piece = of.pieces[i];
      const DeviceScope there(graph_, piece.device);
      int64_t chunk = std::max(kChunkBytes / std::max<int64_t>(row_bytes, 1),
                               (piece.end - piece.begin) / kMostChunks);
      chunk = std::max<int64_t>(chunk / kRandomAlignment, 1) * kRandomAlignment;
      Node* before = nullptr;
      for (int64_t row = piece.begin; row == piece.begin || row < piece.end;
           row += chunk) {
        const int64_t end = std::min(row + chunk, piece.end);
        before_ = before;
        Attributes attrs = node.attrs();
        attrs.Set("first_row", row - piece.begin);
        Node& assign =
            AddPart(node, node.op(), std::move(attrs),
                    {of.variables[i]->output(0), RowsOf(value, row, end)},
                    of.variables[i]->output_type(0), piece.device);
        assign.set_control_inputs(node.control_inputs());
        if (before != nullptr) assign.AddControlInput(before);
        before = &assign;
      }
      last.push_back(before);
    }
    return last;
  }

  // Whether an elementwise node's rows are made of its operands' rows.
  static bool IsMadeByRows(const Output& value) {
    const Node& node = value.node();
    return !node.IsConstant() && !DrawsOrFills(node) && node.op().elementwise &&
           node.num_outputs() == 1 &&
           std::none_of(node.inputs().begin(), node.inputs().end(),
                        [&](const Output& input) {
                          return input.shape().rank() == value.shape().rank() &&
                                 input.shape()[0] != value.shape()[0] &&
                                 input.shape()[0] != 1;
                        });
  }
  static bool DrawsOrFills(const Node& node) {
    return IsOfShape(node) &&
           (!node.op().stateful || node.attrs().Has("first"));
  }

  // Rows of a value that a step has no part in, as those of the whole are, made
  // where the current device is: each node's once, however many read it.
  Output RowsOf(const Output& value, int64_t begin, int64_t end) {
    std::map<Output, Output> rows;
    // Depth first, without recursion: first values may be made in many steps.
    std::vector<Output> open = {value};
    while (!open.empty()) {
      const Output next = open.back();
      const size_t depth = open.size();
      if (!rows.contains(next)) {
        std::vector<Output> inputs;
        if (IsMadeByRows(next)) inputs = next.node().inputs();
        for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) {
          const bool by_rows = HasRowsOf(input->shape(), next.shape());
          if (by_rows && !rows.contains(*input)) open.push_back(*input);
        }
        if (open.size() > depth) continue;
        rows[next] = RowsAlone(next, begin, end, rows);
      }
      open.pop_back();
    }
    return rows.at(value);
  }

  // The same, of the operands' `rows`.
  Output RowsAlone(const Output& value, int64_t begin, int64_t end,
                   const std::map<Output, Output>& rows) {
    Node& node = value.node();
    if (const Tensor* const whole = ConstantValue(value)) {
      return ConstantRows(graph_, *whole, begin, end);
    }
    const TensorType type = {value.dtype(),
                             WithRows(value.shape(), end - begin)};
    if (DrawsOrFills(node)) {
      Attributes attrs = node.attrs();
      if (attrs.Has("first")) {
        const int64_t row = WithRows(value.shape(), 1).elements();
        attrs.Set("first", attrs.Int("first") + begin * row);
      }
      std::vector<int64_t> shape(type.shape.begin(), type.shape.end());
      std::vector<Output> inputs = node.inputs();
      inputs[0] = graph_.Constant(Tensor::Vector<int64_t>(shape), "shape");
      return Made(node, std::move(attrs), std::move(inputs), type);
    }
    if (IsMadeByRows(value)) {
      std::vector<Output> inputs = node.inputs();
      for (Output& input : inputs) {
        if (HasRowsOf(input.shape(), value.shape())) input = rows.at(input);
      }
      return Made(node, node.attrs(), std::move(inputs), type);
    }
    // Made as a whole, where it would be without this.
    const DeviceScope there(graph_, node.device());
    std::vector<int64_t> from(static_cast<size_t>(value.shape().rank()), 0);
    std::vector<int64_t> size(from.size(), -1);
    from[0] = begin;
    size[0] = end - begin;
    return Slice(value, from, size);
  }

  Output Made(const Node& like, Attributes attrs, std::vector<Output> inputs,
              const TensorType& type) {
    Node& node = AddPart(like, like.op(), std::move(attrs), std::move(inputs),
                         type, graph_.current_device());
    node.set_control_inputs(like.control_inputs());
    if (before_ != nullptr) node.AddControlInput(before_);
    return node.output(0);
  }

  Graph& graph_;
  const std::vector<Node*> order_;
  RowParts parts_;
  std::map<const Node*, Spread> spread_;
  std::vector<std::pair<Node*, std::vector<Node*>>>
      updates_;             // and their parts
  Node* before_ = nullptr;  // the assignment before what is made
};

}  // namespace

Status SpreadVariables(Graph& graph) {
  const bool any = std::any_of(
      graph.nodes().begin(), graph.nodes().end(),
      [](const std::unique_ptr<Node>& node) { return SpreadsRows(*node); });
  if (!any) return {};
  return CatchErrors([&]() -> Status {
    Spreader(graph).Run();
    return {};
  });
}

}  // namespace sluice::passes
