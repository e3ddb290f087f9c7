#include <map>
#include <queue>
#include <unordered_set>
#include <vector>

#include "graph/passes/passes.h"
#include "graph/traversal.h"

namespace sluice::passes {
namespace {

bool InArena(const Output& root) {
  const Node& node = root.node();
  return node.op().instruction && !(node.mutates() > 0 && root.index() == 0);
}

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph) : graph_(graph), countdown_(graph) {
    for (const auto& node : graph.nodes()) {
      for (const Output& input : node->inputs()) ++uses_[ViewRoot(input)];
      if (node->op().wait != nullptr) Hurry(*node);
    }
  }

  std::vector<Node*> Run() {
    auto later = [](const Node* a, const Node* b) { return a->id() > b->id(); };
    std::priority_queue<Node*, std::vector<Node*>, decltype(later)> ready(
        later);
    std::queue<Node*> waits;     // taken last
    std::vector<Node*> at_once;  // taken first, oldest last
    auto offer = [&](Node* node) {
      if (IsWait(*node)) {
        waits.push(node);
      } else if (early_.contains(node) || Frees(*node)) {
        at_once.push_back(node);
      } else {
        ready.push(node);
      }
    };
    countdown_.Start([&](Node* node) { ready.push(node); });
    std::vector<Node*> order;
    order.reserve(graph_.nodes().size());
    while (!ready.empty() || !at_once.empty() || !waits.empty()) {
      Node* node;
      if (!at_once.empty()) {
        node = at_once.back();
        at_once.pop_back();
      } else if (!ready.empty()) {
        node = ready.top();
        ready.pop();
      } else {
        node = waits.front();
        waits.pop();
      }
      order.push_back(node);
      for (const Output& input : node->inputs()) --uses_[ViewRoot(input)];
      countdown_.Finish(*node, offer);
    }
    SLUICE_CHECK(order.size() == graph_.nodes().size());
    return order;
  }

 private:
  static bool IsWait(const Node& node) {
    return node.num_inputs() > 0 && node.input(0).node().op().wait != nullptr;
  }

  // What goes on beside other nodes starts as soon as it can, and so does what
  // only brings its operand together.
  void Hurry(const Node& start) {
    early_.insert(&start);
    if (start.num_inputs() == 0) return;
    const Node* node = &start.input(0).node();
    const auto pass_views = [&] {
      for (; node->op().view; node = &node->input(0).node()) {
        early_.insert(node);
      }
    };
    pass_views();
    const Node& joined = *node;
    early_.insert(&joined);
    for (const Output& input : joined.inputs()) {
      node = &input.node();
      pass_views();
    }
  }

  // Whether running the node now leaves fewer bytes alive.
  bool Frees(const Node& node) const {
    int64_t change = 0;
    if (!node.op().view) {
      for (int i = 0; i < node.num_outputs(); ++i) {
        if (InArena(node.output(i))) {
          change += static_cast<int64_t>(node.output_type(i).bytes());
        }
      }
    }
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Output& root = ViewRoot(node.input(i));
      if (InArena(root) && uses_.at(root) == 1) {
        change -= static_cast<int64_t>(root.type().bytes());
      }
    }
    return change < 0;
  }

  const Graph& graph_;
  Countdown countdown_;
  // Not yet run, by what the buffer is: views share their input's.
  std::map<Output, int> uses_;
  std::unordered_set<const Node*> early_;  // taken as soon as they can be
};

}  // namespace

std::vector<Node*> Schedule(const Graph& graph) {
  return Scheduler(graph).Run();
}

}  // namespace sluice::passes
