// Filters in the layout that a device's convolutions read (filters_ohwi), all
// of a step's in one launch, where each convolution would turn its own and each
// gradient of a filter turn back:
//
//   half = CastList(filter, ...)             turned = TurnFilters(filter, ...)
//   y    = Conv2D(x, half)                   y  = OhwiConv2D(x, turned)
//   dx   = Conv2DBackpropInput(dy, half, s)  dx = OhwiConv2DBackpropInput(...)
//   d    = Conv2DBackpropFilter(x, dy, s)    o  = OhwiConv2DBackpropFilter(...)
//                                            d  = TurnFilters(o, ...)
//   ApplyMomentumList(..., d, ...)           ApplyMomentumList(..., d, ...)
//
// Variables keep their layout, and so do checkpoints. Runs on what Fuse leaves:
// a convolution that has a bias of its own keeps its filter as it is, and so
// does one whose filter is no variable as the step finds it. Whether all of
// the gradients are finite is asked of them as they come.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/semantics/filter_layout.h"
#include "graph/passes/passes.h"
#include "graph/passes/variable_writes.h"

namespace sluice::passes {
namespace {

bool ReadsFilter(const Node& node) {
  return node.op().ohwi_op != nullptr &&
         node.op().conv.pass != ConvPass::kFilter;
}
bool MakesFilterGradient(const Node& node) {
  return node.op().ohwi_op != nullptr &&
         node.op().conv.pass == ConvPass::kFilter;
}

class Turner {
 public:
  Turner(Graph& graph, const DeviceDescriptions& devices)
      : graph_(graph),
        devices_(devices),
        nodes_(graph.TopologicalOrder()),
        writes_(nodes_) {
    for (Node* node : nodes_) {
      for (const Output& input : node->inputs()) {
        users_[&input.node()].push_back(node);
      }
    }
  }

  void Run() {
    std::vector<Node*> first;  // nodes that must come before all others
    TurnVariables(&first);
    TurnGradients();
    DropUnused();
    std::vector<Node*> order = first;
    const std::set<const Node*> placed(first.begin(), first.end());
    for (Node* node : nodes_) {
      if (placed.contains(node)) continue;
      for (Node* before : before_[node]) order.push_back(before);
      order.push_back(node);
    }
    graph_.Renumber(order);
  }

 private:
  bool Likes(const Node& node) const {
    const DeviceDescription* device = FindDevice(devices_, node.device());
    return device != nullptr && device->filters_ohwi;
  }

  const OpDef& Op(const std::string& name) const {
    return OpTable::Global().Get(name);
  }

  // The variable that a filter is a copy of in some dtype, or is, as the step
  // finds it; invalid where it is something else.
  Output SourceOf(const Output& filter, const Node& user) const {
    const Node& node = filter.node();
    const Node* reader = &user;
    Output source = filter;
    if ((node.Is("Cast") || node.Is("CastList")) &&
        node.control_inputs().empty() && node.device() == user.device()) {
      source = node.input(filter.index());
      reader = &node;
    }
    const bool kept =
        source.node().IsVariable() && source.node().control_inputs().empty() &&
        IsFloating(source.dtype()) && writes_.Before(source, *reader).empty() &&
        writes_.Before(source, user).empty();
    return kept ? source : Output();
  }

  Node& NewTurn(const std::string& layout, DType to, const Node& beside) {
    const std::string name = graph_.UniqueName("turn_filters");
    Node& turn = graph_.AddRaw(name, name, Op("TurnFilters"),
                               {{"to", to}, {"layout", layout}}, {}, {});
    turn.set_device(beside.device());
    turn.set_location(beside.location());
    return turn;
  }

  // One more filter; what it becomes.
  static Output Append(Node& turn, const Output& filter, const Shape& shape) {
    std::vector<Output> inputs = turn.inputs();
    std::vector<TensorType> types = turn.output_types();
    inputs.push_back(filter);
    types.push_back({turn.attrs().Type("to"), shape});
    turn.set_inputs(std::move(inputs));
    turn.set_output_types(std::move(types));
    return turn.output(turn.num_outputs() - 1);
  }

  void TurnVariables(std::vector<Node*>* first) {
    std::map<std::tuple<std::string, DType, DType>, Node*> turns;
    std::map<std::pair<Node*, Output>, Output> turned;
    for (Node* node : nodes_) {
      if (!ReadsFilter(*node) || !Likes(*node)) continue;
      const Output filter = node->input(1);
      const Output source = SourceOf(filter, *node);
      if (!source.valid()) continue;
      Node*& turn = turns[{node->device(), source.dtype(), filter.dtype()}];
      if (turn == nullptr) turn = &NewTurn("OHWI", filter.dtype(), *node);
      Output& ohwi = turned[{turn, source}];
      if (!ohwi.valid()) {
        ohwi = Append(*turn, source, OhwiOf(source.shape()));
        if (seen_.insert(&source.node()).second) {
          first->push_back(&source.node());
        }
        // Who writes the variable waits for all who read it before.
        for (Node* user : users_[&source.node()]) {
          for (int i = 0; i < user->mutates(); ++i) {
            if (user->input(i) == source) user->AddControlInput(turn);
          }
        }
      }
      std::vector<Output> inputs = node->inputs();
      inputs[1] = ohwi;
      node->Become(Op(node->op().ohwi_op), node->attrs(), std::move(inputs));
      read_before_.insert(&filter.node());
    }
    for (const auto& [key, turn] : turns) first->push_back(turn);
  }

  // The one update that a gradient is for, where nobody else asks for more than
  // whether it is finite; or null.
  Node* UpdateOf(const Node& gradient) {
    Node* update = nullptr;
    for (Node* user : users_[&gradient]) {
      if (user->op().asks_finite) continue;
      const bool updates = user->op().rule != nullptr;
      if (!updates || (update != nullptr && update != user)) return nullptr;
      update = user;
    }
    return update;
  }

  void TurnGradients() {
    std::map<std::tuple<Node*, std::string, DType>, Node*> turns;
    for (Node* node : nodes_) {
      if (!MakesFilterGradient(*node) || !Likes(*node)) continue;
      Node* const update = UpdateOf(*node);
      if (update == nullptr || update->device() != node->device()) continue;
      const TensorType hwio = node->output_type(0);
      const Shape shape = OhwiOf(hwio.shape);
      const Tensor dims = Tensor::Vector<int64_t>(
          std::vector<int64_t>(shape.begin(), shape.end()));
      const std::string name = graph_.UniqueName(node->name() + "/ohwi");
      Node& constant = graph_.AddRaw(name, name, Op("Const"), {{"value", dims}},
                                     {}, {{dims.dtype(), dims.shape()}});
      constant.set_device(node->device());
      constant.set_location(node->location());
      before_[node].push_back(&constant);
      node->Become(Op(node->op().ohwi_op), node->attrs(),
                   {node->input(0), node->input(1), constant.output(0)});
      node->set_output_types({{hwio.dtype, shape}});
      Node*& turn = turns[{update, node->device(), hwio.dtype}];
      if (turn == nullptr) {
        turn = &NewTurn("HWIO", hwio.dtype, *node);
        before_[update].push_back(turn);
      }
      const Output back = Append(*turn, node->output(0), hwio.shape);
      for (int i = 0; i < update->num_inputs(); ++i) {
        if (update->input(i) == node->output(0)) update->set_input(i, back);
      }
    }
  }

  // Copies that nobody reads any more.
  void DropUnused() {
    std::map<const Node*, std::set<int>> used;
    for (const auto& node : graph_.nodes()) {
      for (const Output& input : node->inputs()) {
        if (read_before_.contains(&input.node())) {
          used[&input.node()].insert(input.index());
        }
      }
    }
    std::map<Output, Output> moved;
    for (Node* node : nodes_) {
      if (!read_before_.contains(node) || node->IsVariable()) continue;
      const std::set<int>& kept = used[node];
      if (static_cast<int>(kept.size()) == node->num_outputs()) continue;
      std::vector<Output> inputs;
      std::vector<TensorType> types;
      for (int i : kept) {
        moved[node->output(i)] = node->output(static_cast<int>(inputs.size()));
        inputs.push_back(node->input(i));
        types.push_back(node->output_type(i));
      }
      if (kept.empty()) {  // writers may wait for it
        node->Become(Op("NoOp"), {}, {});
      } else {
        node->Become(node->op(), node->attrs(), std::move(inputs));
      }
      node->set_output_types(std::move(types));
    }
    if (moved.empty()) return;
    for (const auto& node : graph_.nodes()) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        const auto to = moved.find(node->input(i));
        if (to != moved.end()) node->set_input(i, to->second);
      }
    }
  }

  Graph& graph_;
  const DeviceDescriptions& devices_;
  const std::vector<Node*> nodes_;
  const VariableWrites writes_;
  std::unordered_map<const Node*, std::vector<Node*>> users_;
  std::set<const Node*> seen_;         // variables that are turned
  std::set<const Node*> read_before_;  // what filters were read from
  std::map<const Node*, std::vector<Node*>> before_;  // new, before what
};

}  // namespace

void TurnFilters(Graph& graph, const DeviceDescriptions& devices) {
  const bool any = std::any_of(
      devices.begin(), devices.end(),
      [](const DeviceDescription& device) { return device.filters_ohwi; });
  if (any) Turner(graph, devices).Run();
}

}  // namespace sluice::passes
