// Shape inference with the feeds' shapes, and constant folding, in one sweep:
// a folded shape operand makes the next node's shape concrete.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/passes/passes.h"
#include "graph/traversal.h"

namespace sluice::passes {
namespace {

constexpr size_t kMostFoldedBytes = 1 << 20;

bool IsConst(const Output& output) {
  return output.node().IsConstant();
}

class Refiner {
 public:
  Refiner(Graph& graph, const passes::Fold& fold)
      : graph_(graph), fold_(fold) {}

  Status Run() {
    const std::vector<Node*> order = graph_.TopologicalOrder();
    const size_t before = graph_.nodes().size();
    for (Node* node : order) {
      new_order_.push_back(node);
      TakeReplacements(*node);
      InheritControls(*node);
      SLUICE_RETURN_IF_ERROR(Graph::Infer(*node));
      SLUICE_RETURN_IF_ERROR(CheckConcrete(*node));
      NoteWritesBefore(*node);
      if (Foldable(*node)) {
        WaitForWrites(*node);
        Fold(*node);
      }
      if (node->IsConstant()) GiveUpControls(*node);
    }
    if (graph_.nodes().size() > before) graph_.Renumber(new_order_);
    return {};
  }

 private:
  // Inputs that were outputs of a folded node with several.
  void TakeReplacements(Node& node) {
    if (replacements_.empty()) return;
    for (int i = 0; i < node.num_inputs(); ++i) {
      auto it = replacements_.find(node.input(i));
      if (it != replacements_.end()) node.set_input(i, it->second);
    }
  }

  // A constant waits for nothing, so whoever used one as a marker ("after W")
  // waits for what it waited for.
  void InheritControls(Node& node) {
    for (const Output& input : node.inputs()) {
      auto it = given_up_.find(&input.node());
      if (it == given_up_.end()) continue;
      for (Node* control : it->second) node.AddControlInput(control);
    }
    const std::vector<Node*> controls = node.control_inputs();
    if (std::none_of(controls.begin(), controls.end(),
                     [](const Node* c) { return c->IsConstant(); })) {
      return;
    }
    node.set_control_inputs({});
    for (Node* control : controls) {
      if (!control->IsConstant()) {
        node.AddControlInput(control);
      } else if (auto it = given_up_.find(control); it != given_up_.end()) {
        for (Node* inherited : it->second) node.AddControlInput(inherited);
      }
    }
  }

  void NoteWritesBefore(const Node& node) {
    bool after = false;
    ForEachDependency(node, [&](const Node& before) {
      after |= before.mutates() > 0 || after_writes_.contains(&before);
    });
    if (after) after_writes_.insert(&node);
  }

  // A shape is known before what has it is there: of its inputs it keeps the
  // writes that these waited for, which are then done, and done before.
  void WaitForWrites(Node& node) {
    if (!node.op().shape_only || !after_writes_.contains(&node)) return;
    const auto needed = Needed({&node});
    for (Node* before : new_order_) {
      if (before->mutates() > 0 && needed.contains(before)) {
        node.AddControlInput(before);
      }
    }
  }

  void GiveUpControls(Node& node) {
    if (node.control_inputs().empty()) return;
    given_up_[&node] = node.control_inputs();
    node.set_control_inputs({});
  }

  static Status CheckConcrete(const Node& node) {
    for (const TensorType& type : node.output_types()) {
      if (type.shape.concrete()) continue;
      std::string why = "it depends on values known only when the step runs";
      if (node.IsPlaceholder()) {
        why = "feed it";
      } else {
        for (const Output& input : node.inputs()) {
          if (IsInteger(input.dtype()) && !IsConst(input)) {
            why = fmt::format(
                "it depends on the value of '{}', which is "
                "known only when the step runs",
                // A feed's own name is the session's.
                input.node().IsPlaceholder() ? input.node().origin()
                                             : input.name());
          }
        }
      }
      return InvalidArgument(
          fmt::format("{}: its shape {} is not known when the step is "
                      "prepared: {} ({})",
                      node.Describe(), type.ToString(), why, node.location()));
    }
    return {};
  }

  bool Foldable(const Node& node) const {
    const OpDef& op = node.op();
    if (op.stateful || op.sink || op.mutates > 0 || node.IsConstant() ||
        node.num_outputs() == 0) {
      return false;
    }
    size_t bytes = 0;
    for (const TensorType& type : node.output_types()) bytes += type.bytes();
    return bytes <= kMostFoldedBytes &&
           (op.shape_only ||
            std::all_of(node.inputs().begin(), node.inputs().end(), IsConst));
  }

  void Fold(Node& node) {
    std::vector<Tensor> inputs;
    for (const Output& input : node.inputs()) {
      inputs.push_back(IsConst(input) ? input.node().attrs().TensorOf("value")
                                      // Only its shape is looked at.
                                      : Tensor(input.dtype(), input.shape(),
                                               nullptr, nullptr));
    }
    Result<std::vector<Tensor>> values = fold_(node, inputs);
    // A node that fails is left to fail, with its name, when it runs; but a
    // step is the same whenever it can be prepared.
    if (values.status().code() == Code::kResourceExhausted) {
      throw Error(values.status());
    }
    if (!values.ok()) return;
    const OpDef& constant = OpTable::Global().Get("Const");
    if (node.num_outputs() == 1) {
      node.Become(constant, {{"value", (*values)[0]}}, {});
      return;
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      const std::string name =
          graph_.UniqueName(fmt::format("{}/{}", node.name(), i));
      Node& folded =
          graph_.AddRaw(name, name, constant, {{"value", (*values)[i]}}, {},
                        {node.output_type(i)});
      folded.set_device(node.device());
      folded.set_control_inputs(node.control_inputs());
      GiveUpControls(folded);
      new_order_.push_back(&folded);
      replacements_[node.output(i)] = folded.output(0);
    }
  }

  Graph& graph_;
  const passes::Fold& fold_;
  std::map<Output, Output> replacements_;
  std::unordered_map<const Node*, std::vector<Node*>> given_up_;
  std::vector<Node*> new_order_;
  std::unordered_set<const Node*> after_writes_;
};

}  // namespace

Status Refine(Graph& graph, const Fold& fold) {
  try {
    return Refiner(graph, fold).Run();
  } catch (const Error& error) {
    return error.status();
  }
}

}  // namespace sluice::passes
