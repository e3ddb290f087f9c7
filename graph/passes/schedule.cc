#include <map>
#include <queue>

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
    }
  }

  std::vector<Node*> Run() {
    auto later = [](const Node* a, const Node* b) { return a->id() > b->id(); };
    std::priority_queue<Node*, std::vector<Node*>, decltype(later)> ready(
        later);
    std::vector<Node*> freeing;  // taken first, oldest last
    auto offer = [&](Node* node) {
      Frees(*node) ? freeing.push_back(node) : ready.push(node);
    };
    countdown_.Start([&](Node* node) { ready.push(node); });
    std::vector<Node*> order;
    order.reserve(graph_.nodes().size());
    while (!ready.empty() || !freeing.empty()) {
      Node* node;
      if (!freeing.empty()) {
        node = freeing.back();
        freeing.pop_back();
      } else {
        node = ready.top();
        ready.pop();
      }
      order.push_back(node);
      for (const Output& input : node->inputs()) --uses_[ViewRoot(input)];
      countdown_.Finish(*node, offer);
    }
    SLUICE_CHECK(order.size() == graph_.nodes().size());
    return order;
  }

 private:
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
};

}  // namespace

std::vector<Node*> Schedule(const Graph& graph) {
  return Scheduler(graph).Run();
}

}  // namespace sluice::passes
