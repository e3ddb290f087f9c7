// Walks over a graph that more than one place needs. All are linear in nodes
// and edges.
#ifndef SLUICE_GRAPH_TRAVERSAL_H_
#define SLUICE_GRAPH_TRAVERSAL_H_

#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {

// The output whose buffer `output` shares: itself, or seen through views.
inline const Output& ViewRoot(const Output& output) {
  const Output* root = &output;
  while (root->index() == 0 && root->node().op().view) {
    root = &root->node().input(0);
  }
  return *root;
}

// The scalar that counts the filled rows of `output` (OpDef::counter); invalid
// if all of them are.
inline Output CounterOf(const Output& output) {
  const CounterFn counter = output.node().op().counter;
  return counter == nullptr ? Output() : counter(output.node(), output.index());
}

// Calls fn(node) for every node that `node` waits for: one call for each edge.
template <typename Fn>
void ForEachDependency(const Node& node, Fn&& fn) {
  for (const Output& input : node.inputs()) fn(input.node());
  for (Node* control : node.control_inputs()) fn(*control);
}

// The roots and all nodes that they need. A node for which `enter` returns
// false is left out, and so are nodes that only it needs.
template <typename Enter>
std::unordered_set<const Node*> Needed(const std::vector<const Node*>& roots,
                                       Enter&& enter) {
  std::unordered_set<const Node*> needed;
  std::vector<const Node*> stack;
  const auto visit = [&](const Node& node) {
    if (enter(node) && needed.insert(&node).second) stack.push_back(&node);
  };
  for (const Node* root : roots) visit(*root);
  while (!stack.empty()) {
    const Node& node = *stack.back();
    stack.pop_back();
    ForEachDependency(node, visit);
  }
  return needed;
}
inline std::unordered_set<const Node*> Needed(
    const std::vector<const Node*>& roots) {
  return Needed(roots, [](const Node&) { return true; });
}

// What running `operations` runs for its effect, each once, in order: the
// members of groups in place of these, and what a view shows, with what the
// view waits for, in place of the view.
std::vector<Node*> MembersOf(const std::vector<Node*>& operations);

// Kahn's algorithm (1962), but for the choice among nodes that are ready: that
// is the caller's. The graph must not change meanwhile.
class Countdown {
 public:
  explicit Countdown(const Graph& graph);

  // Whether the node waits for others.
  bool Waits(const Node& node) const { return waiting_[node.id()] > 0; }
  // Calls ready(node) for the nodes that wait for none from the start.
  template <typename Fn>
  void Start(Fn&& ready) const {
    for (const auto& node : graph_.nodes()) {
      if (!Waits(*node)) ready(node.get());
    }
  }
  // `node` is done: calls ready(user) for each that now waits for none.
  template <typename Fn>
  void Finish(const Node& node, Fn&& ready) {
    for (int i = begin_[node.id()]; i < begin_[node.id() + 1]; ++i) {
      Node* const user = users_[i];
      if (--waiting_[user->id()] == 0) ready(user);
    }
  }

 private:
  const Graph& graph_;
  // By id: how many dependencies are open; and the users of node i, which are
  // users_[begin_[i]] up to users_[begin_[i + 1]].
  std::vector<int> waiting_, begin_;
  std::vector<Node*> users_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_TRAVERSAL_H_
