#include "graph/text/roles.h"

#include <algorithm>
#include <tuple>

namespace sluice {
namespace {

constexpr std::string_view kGradients = "gradients";  // graph/autograd.cc
constexpr std::string_view kRecompute = "recompute";  // graph/recompute.cc

// Whether the scope is `outer` or below it; all are below "".
bool Within(std::string_view scope, std::string_view outer) {
  return outer.empty() || scope == outer ||
         (scope.starts_with(outer) && scope[outer.size()] == '/');
}

// Cuts `word` and the slash after it from the front.
bool CutFront(std::string_view word, std::string_view& name) {
  if (!name.starts_with(word) || name.size() <= word.size() ||
      name[word.size()] != '/') {
    return false;
  }
  name.remove_prefix(word.size() + 1);
  return true;
}

// Cuts all up to the last scope "gradients"; false if there is none. There are
// several in gradients of gradients.
bool CutGradients(std::string_view& name) {
  for (std::string_view scope = ScopeOf(name); !scope.empty();
       scope = ScopeOf(scope)) {
    const std::string_view outer = ScopeOf(scope);
    const std::string_view word =
        outer.empty() ? scope : scope.substr(outer.size() + 1);
    if (word != kGradients) continue;
    name.remove_prefix(scope.size() + 1);
    return true;
  }
  return false;
}

Part PartByName(std::string_view name) {
  return CutGradients(name)             ? Part::kBackward
         : CutFront(kUpdateScope, name) ? Part::kUpdate
                                        : Part::kForward;
}

}  // namespace

std::string_view ScopeOf(std::string_view name) {
  const size_t slash = name.rfind('/');
  return slash == name.npos ? std::string_view() : name.substr(0, slash);
}

std::string_view DifferentiatedName(std::string_view name) {
  CutGradients(name);
  return CutFront(kRecompute, name) ? name : ScopeOf(name);
}

Roles::Roles(const Graph& graph)
    : graph_(graph), order_(graph.TopologicalOrder()) {
  size_t ids = 0;
  for (const Node* node : order_) {
    ids = std::max(ids, static_cast<size_t>(node->id()) + 1);
  }
  users_.resize(ids);
  position_.resize(ids);
  parts_.resize(ids);
  leaders_.resize(ids);
  scopes_.resize(ids);
  for (size_t i = 0; i < order_.size(); ++i) {
    const Node& node = *order_[i];
    position_[node.id()] = i;
    parts_[node.id()] = PartByName(node.name());
    leaders_[node.id()] = &node;
    for (const Output& input : node.inputs()) {
      users_[input.node().id()].push_back(&node);
    }
    for (const Node* control : node.control_inputs()) {
      users_[control->id()].push_back(&node);
    }
  }
  FindUpdate();
  FindLeaders();
  for (const Node* node : order_) {
    if (Leads(*node) && part(*node) == Part::kForward) {
      scopes_[node->id()] = FindScope(*node);
    }
  }
}

// A learning rate's schedule has no scope, yet it serves the optimizer alone.
// Nor has the update that a pass made of those of many layers' statistics.
void Roles::FindUpdate() {
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    const Node& node = **it;
    const bool list = node.op().mutates_attr != nullptr;
    if (node.op().assigns && list) parts_[node.id()] = Part::kUpdate;
    if (part(node) != Part::kForward || !ScopeOf(node.name()).empty() ||
        node.op().sink) {
      continue;
    }
    bool update = false, other = false;
    for (const Node* user : users(node)) {
      if (user->op().sink) continue;
      (part(*user) == Part::kUpdate ? update : other) = true;
    }
    if (update && !other) parts_[node.id()] = Part::kUpdate;
  }
}

// The variable that the node is named below ("weights/init/zeros",
// "weights/velocity"), or null.
const Node* Roles::VariableAbove(const Node& node) const {
  for (std::string_view name = ScopeOf(node.name()); !name.empty();
       name = ScopeOf(name)) {
    const Node* above = graph_.Find(name);
    if (above != nullptr && above->IsVariable()) return above;
  }
  return nullptr;
}

// Values go to their first user, the forward part's before others; what makes
// a variable's first value goes where the variable goes.
void Roles::FindLeaders() {
  for (const Node* node : order_) {
    if (!IsValue(*node)) continue;
    const Node*& leader = leaders_[node->id()];
    const auto rank = [&](const Node& user) {
      return std::tuple(VariableAbove(user) != nullptr, part(user),
                        position_[user.id()]);
    };
    for (const Node* user : users(*node)) {
      if (IsValue(*user)) continue;  // by a control edge
      if (leader == node || rank(*user) < rank(*leader)) leader = user;
    }
  }
  for (const Node* node : order_) {
    const Node* above = IsValue(*node) ? nullptr : VariableAbove(*node);
    if (above == nullptr || part(*node) != Part::kForward) continue;
    // A variable that only such nodes use stays with one of them.
    const Node* leader = leaders_[above->id()];
    if (VariableAbove(*leader) == nullptr) leaders_[node->id()] = leader;
  }
  // Values of those nodes, in turn.
  for (const Node* node : order_) {
    leaders_[node->id()] = leaders_[leaders_[node->id()]->id()];
    parts_[node->id()] = part(leader(*node));
  }
}

// By the name. What a model does between its layers without changing the shape,
// a sum or an activation, is drawn beside the layer that it finishes: ResNet's
// blocks end so.
std::string_view Roles::FindScope(const Node& node) const {
  std::string_view scope = ScopeOf(node.name());
  // What is named below a node stands beside that node.
  for (std::string_view at = scope; !at.empty(); at = ScopeOf(at)) {
    if (graph_.Find(at) != nullptr) scope = ScopeOf(at);
  }
  const Node* operand = LatestOperand(node, [&](const Node& of) {
    return Leads(of) && part(of) == Part::kForward;
  });
  if (operand == nullptr || node.num_outputs() == 0 ||
      node.output_type(0).shape != operand->output_type(0).shape) {
    return scope;
  }
  const std::string_view named = ScopeOf(operand->name());
  const std::string_view made = scopes_[operand->id()];
  // An operand that was moved itself stands between layers already.
  const std::string_view beside = named == made ? ScopeOf(made) : made;
  return Within(beside, scope) ? beside : scope;
}

}  // namespace sluice
