#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>

#include "engine/parse_number.h"
#include "graph/near_misses.h"
#include "graph/output_index.h"
#include "graph/traversal.h"

namespace sluice {

const Tensor* ConstantValue(const Output& output) {
  const Node& node = output.node();
  return node.IsConstant() ? &node.attrs().TensorOf("value") : nullptr;
}

std::string FormatLocation(const std::source_location& location) {
  std::string_view file = location.file_name();
  if (size_t slash = file.rfind('/'); slash != file.npos) {
    file.remove_prefix(slash + 1);
  }
  return fmt::format("{}:{}", file, location.line());
}

// --- Handles -----------------------------------------------------------------

Graph& Output::graph() const {
  return node_->graph();
}
const TensorType& Output::type() const {
  ThrowIfError(CheckOutputIndex(*node_, index_));
  return node_->output_type(index_);
}
std::string Output::name() const {
  return index_ == 0 ? node_->name()
                     : fmt::format("{}:{}", node_->name(), index_);
}
bool operator<(const Output& a, const Output& b) {
  const int ia = a.node_ ? a.node_->id() : -1;
  const int ib = b.node_ ? b.node_->id() : -1;
  if (ia != ib) return ia < ib;
  if (a.node_ != b.node_) return std::less<>()(a.node_, b.node_);
  return a.index_ < b.index_;
}

const Output& Operand::tensor() const {
  if (!output_.valid()) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("a tensor was wanted, got {} ({})",
                    is_number_
                        ? "the number " + number_.ToString()
                        : "an empty Output: a handle that no op returned",
                    FormatLocation(location_)));
  }
  return output_;
}

void Node::AddControlInput(Node* node) {
  if (node == this) return;
  if (std::find(controls_.begin(), controls_.end(), node) == controls_.end()) {
    controls_.push_back(node);
    Changed();
  }
}

std::string Node::Describe() const {
  return fmt::format("{} '{}'", op_->name, name_);
}

// --- Scopes ------------------------------------------------------------------

NameScope::NameScope(Graph& graph, const std::string& name)
    : graph_(graph), saved_(graph.scope_) {
  if (!name.empty()) graph_.scope_ += name + "/";
}
NameScope::NameScope(const Scope& scope)
    : graph_(scope.graph()), saved_(graph_.scope_) {
  graph_.scope_ = scope.name().empty() ? "" : scope.name() + "/";
}

ControlScope::ControlScope(Graph& graph,
                           const std::vector<Operation>& operations)
    : graph_(graph), saved_(graph.controls_) {
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].valid()) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("operation {} to run after is an empty handle, "
                            "which no op returned",
                            i));
  }
  for (const Operation& operation : operations) {
    graph_.controls_.push_back(&operation.node());
  }
}

LocationScope::LocationScope(Graph& graph, const std::source_location& location)
    : LocationScope(graph, FormatLocation(location)) {}

// --- Look-up -----------------------------------------------------------------

Node* Graph::Find(std::string_view name) const {
  auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : it->second;
}

Output Graph::Get(std::string_view output_name) const {
  std::string_view name = output_name;
  int index = 0;
  // A node's own name may have a colon.
  Node* node = Find(name);
  if (const size_t colon = name.rfind(':'); colon != name.npos) {
    const int number = ParseWhole<int>(name.substr(colon + 1)).value_or(-1);
    const Node* const before = Find(name.substr(0, colon));
    if (node == nullptr) {
      index = number;
      name = name.substr(0, colon);
      node = Find(name);
    } else if (before != nullptr && number > 0 &&
               number < before->num_outputs()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' is the name of {} ({}) and of output {} of "
                              "{} ({}): name one of the nodes otherwise",
                              name, node->Describe(), node->location(), number,
                              before->Describe(), before->location()));
    }
  }
  if (node == nullptr) {
    std::vector<std::string_view> names;
    for (const auto& n : nodes_) names.emplace_back(n->name());
    throw Error(Code::kNotFound, fmt::format("the graph has no node '{}'{}",
                                             name, NearMisses(name, names)));
  }
  if (index < 0 || index >= node->num_outputs()) {
    throw Error(Code::kNotFound,
                fmt::format("{} has {} outputs, no '{}'", node->Describe(),
                            node->num_outputs(), output_name));
  }
  return node->output(index);
}

std::vector<Output> Graph::Variables() const {
  std::vector<Output> variables;
  for (const auto& node : nodes_) {
    if (node->IsVariable()) variables.push_back(node->output(0));
  }
  return variables;
}

std::vector<Output> Graph::TrainableVariables() const {
  std::vector<Output> variables = Variables();
  std::erase_if(variables, [](const Output& v) {
    return !v.node().attrs().Bool("trainable");
  });
  return variables;
}

void Graph::AddUpdate(const Operation& operation, Location location) {
  if (!operation.valid()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("AddUpdate: the operation is an empty handle, "
                            "which no op returned ({})",
                            FormatLocation(location)));
  }
  updates_.push_back(operation);
}

void Graph::Freeze(std::function<bool(std::string_view name)> frozen,
                   Location location) {
  std::vector<Node*> present;
  std::unordered_map<const Node*, const Node*> updates;
  for (const auto& node : nodes_) {
    if (node->IsVariable() && frozen && frozen(node->name())) {
      present.push_back(node.get());
    }
    if (node->IsInitializer()) continue;
    for (int i = 0; i < node->mutates(); ++i) {
      updates.emplace(&node->input(i).node(), node.get());
    }
  }
  for (const Node* variable : present) {
    const auto update = updates.find(variable);
    if (update == updates.end()) continue;
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("Graph::Freeze: {} updates '{}' already. Freeze before "
                    "layers that keep statistics are built, and before "
                    "Minimize, or give Minimize the variables to train ({})",
                    update->second->Describe(), variable->name(),
                    FormatLocation(location)));
  }
  for (Node* variable : present) variable->set_attr("trainable", false);
  frozen_ = std::move(frozen);
}

std::vector<Node*> Graph::Initializers() const {
  std::vector<Node*> initializers;
  for (const auto& node : nodes_) {
    if (node->IsInitializer()) initializers.push_back(node.get());
  }
  return initializers;
}

std::string Graph::UniqueName(const std::string& name) const {
  std::string full = scope_ + name;
  if (!by_name_.contains(full)) return full;
  int& suffix = next_suffix_[full];
  std::string candidate;
  do {
    candidate = fmt::format("{}_{}", full, ++suffix);
  } while (by_name_.contains(candidate));
  return candidate;
}

// --- For passes --------------------------------------------------------------

Node& Graph::AddRaw(const std::string& name, const std::string& origin,
                    const OpDef& op, Attributes attrs,
                    std::vector<Output> inputs,
                    std::vector<TensorType> outputs) {
  SLUICE_CHECK(!by_name_.contains(name));
  auto node = std::make_unique<Node>();
  node->graph_ = this;
  node->id_ = next_id_++;
  node->op_ = &op;
  node->name_ = name;
  node->origin_ = origin;
  node->attrs_ = std::move(attrs);
  node->inputs_ = std::move(inputs);
  node->outputs_ = std::move(outputs);
  by_name_[name] = node.get();
  ++version_;
  nodes_.push_back(std::move(node));
  return *nodes_.back();
}

Node& Graph::AddCopy(const Node& node, std::vector<Output> inputs) {
  Node& twin = AddRaw(node.name_, node.origin_, *node.op_, node.attrs_,
                      std::move(inputs), node.outputs_);
  twin.device_ = node.device_;
  twin.location_ = node.location_;
  return twin;
}

std::unique_ptr<Graph> Graph::Clone(
    const std::function<bool(const Node&)>& keep) const {
  auto copy = std::make_unique<Graph>();
  std::unordered_map<const Node*, Node*> to;
  for (const auto& node : nodes_) {
    if (keep && !keep(*node)) continue;
    to[node.get()] = &copy->AddCopy(*node, {});
  }
  // A second sweep: passes may have made a node depend on a later one.
  for (const auto& [node, twin] : to) {
    for (const Output& input : node->inputs_) {
      SLUICE_CHECK(to.contains(&input.node()));
      twin->inputs_.emplace_back(to.at(&input.node()), input.index());
    }
    for (Node* control : node->controls_) {
      SLUICE_CHECK(to.contains(control));
      twin->controls_.push_back(to.at(control));
    }
  }
  return copy;
}

void Graph::ReplaceUses(const Output& from, const Output& to, bool controls) {
  for (const auto& node : nodes_) {
    if (node.get() == &to.node() && &to.node() == &from.node()) continue;
    for (Output& input : node->inputs_) {
      if (input == from) input = to;
    }
    if (!controls) continue;
    auto it =
        std::find(node->controls_.begin(), node->controls_.end(), &from.node());
    if (it != node->controls_.end()) {
      node->controls_.erase(it);
      node->AddControlInput(&to.node());
    }
  }
  ++version_;
}

void Graph::Remove(const std::function<bool(const Node&)>& dead) {
  std::erase_if(nodes_, [&](const std::unique_ptr<Node>& node) {
    if (!dead(*node)) return false;
    by_name_.erase(node->name_);
    return true;
  });
  ++version_;
}

void Graph::Renumber(const std::vector<Node*>& order) {
  SLUICE_CHECK(order.size() == nodes_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i]->id_ = static_cast<int>(i);
  }
  std::sort(nodes_.begin(), nodes_.end(),
            [](const auto& a, const auto& b) { return a->id() < b->id(); });
  next_id_ = static_cast<int>(order.size());
  ++version_;
}

std::vector<Node*> Graph::TopologicalOrder() const {
  Countdown countdown(*this);
  auto later = [](const Node* a, const Node* b) { return a->id() > b->id(); };
  std::priority_queue<Node*, std::vector<Node*>, decltype(later)> ready(later);
  const auto push = [&](Node* node) { ready.push(node); };
  countdown.Start(push);
  std::vector<Node*> order;
  order.reserve(nodes_.size());
  while (!ready.empty()) {
    Node* node = ready.top();
    ready.pop();
    order.push_back(node);
    countdown.Finish(*node, push);
  }
  if (order.size() != nodes_.size()) {
    for (const auto& node : nodes_) {
      if (countdown.Waits(*node)) {
        throw Error(Code::kInvalidArgument,
                    node->Describe() + ": lies on a cycle");
      }
    }
  }
  return order;
}

}  // namespace sluice
