// What each node of a step is for, told by its name: the model's layers, their
// gradients, or the optimizer; and whom it belongs to in a picture.
#ifndef SLUICE_GRAPH_TEXT_ROLES_H_
#define SLUICE_GRAPH_TEXT_ROLES_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace sluice {

// By the scopes that Gradients() and optimizers open: backward is all within a
// scope "gradients", wherever that is, the update all within "train".
enum class Part { kForward, kBackward, kUpdate };

inline constexpr std::string_view kUpdateScope = "train";

// "a/b/c": "a/b"; "a": "".
std::string_view ScopeOf(std::string_view name);

// The forward node that a backward one is named after, or a name below it:
// "gradients/fc/relu/relu_grad": "fc/relu". Of the sum of what the users of a
// tensor send back, "gradients/add": "".
std::string_view DifferentiatedName(std::string_view name);

// Variables and constants, which pictures list and do not draw.
inline bool IsValue(const Node& node) {
  return node.IsVariable() || node.IsConstant();
}

// Points into the graph, which must stay as it is. The constructor throws Error
// for a graph with a cycle.
class Roles {
 public:
  explicit Roles(const Graph& graph);

  const Graph& graph() const { return graph_; }
  const std::vector<Node*>& order() const { return order_; }  // topological
  size_t ids() const { return users_.size(); }  // passes leave gaps among them
  // Once for each edge.
  const std::vector<const Node*>& users(const Node& node) const {
    return users_[node.id()];
  }
  // A leader's; the others share it.
  Part part(const Node& node) const { return parts_[node.id()]; }
  // The node whose box this one shares: itself, or for a variable, a constant
  // or a node of a variable's first value, the leader of a user of the value or
  // of that variable. A leader leads itself.
  const Node& leader(const Node& node) const { return *leaders_[node.id()]; }
  bool Leads(const Node& node) const { return &leader(node) == &node; }
  // Where a leader of the forward part is drawn: mostly the scope it was named
  // in. A view of a node's name.
  std::string_view scope(const Node& node) const { return scopes_[node.id()]; }

  // The operand computed last of those that `wanted` holds for, or null.
  template <typename Wanted>
  const Node* LatestOperand(const Node& node, Wanted&& wanted) const {
    const Node* latest = nullptr;
    for (const Output& input : node.inputs()) {
      const Node& operand = input.node();
      if (wanted(operand) &&
          (latest == nullptr ||
           position_[latest->id()] < position_[operand.id()])) {
        latest = &operand;
      }
    }
    return latest;
  }

 private:
  void FindUpdate();
  void FindLeaders();
  const Node* VariableAbove(const Node& node) const;
  std::string_view FindScope(const Node& node) const;

  const Graph& graph_;
  const std::vector<Node*> order_;
  // By id.
  std::vector<std::vector<const Node*>> users_;
  std::vector<size_t> position_;  // in order_
  std::vector<Part> parts_;
  std::vector<const Node*> leaders_;
  std::vector<std::string_view> scopes_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_TEXT_ROLES_H_
