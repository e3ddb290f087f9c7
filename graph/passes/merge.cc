// Common subexpressions: value numbering in topological order.
#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

void Mix(size_t value, size_t* hash) {
  *hash = (*hash ^ value) * 0x9e3779b97f4a7c15u;
  *hash ^= *hash >> 32;
}

size_t HashOf(const AttrValue& value) {
  size_t hash = 0;
  std::visit(
      [&]<typename T>(const T& v) {
        if constexpr (std::is_same_v<T, Tensor>) {
          Mix(v.bytes(), &hash);
          const std::string_view bytes(static_cast<const char*>(v.raw()),
                                       std::min<size_t>(v.bytes(), 256));
          Mix(std::hash<std::string_view>()(bytes), &hash);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>> ||
                             std::is_same_v<T, Shape>) {
          for (int64_t i : v) Mix(std::hash<int64_t>()(i), &hash);
        } else {
          Mix(std::hash<T>()(v), &hash);
        }
      },
      value.variant());
  return hash;
}

// What makes two nodes the same, in a canonical order.
struct Signature {
  explicit Signature(const Node& n)
      : node(&n), inputs(n.inputs()), controls(n.control_inputs()) {
    if (n.op().commutative && inputs.size() == 2 && inputs[1] < inputs[0]) {
      std::swap(inputs[0], inputs[1]);
    }
    std::sort(controls.begin(), controls.end());
    Mix(std::hash<const void*>()(&n.op()), &hash);
    Mix(std::hash<std::string>()(n.device()), &hash);
    for (const Output& input : inputs) {
      Mix(std::hash<const void*>()(&input.node()), &hash);
      Mix(static_cast<size_t>(input.index()), &hash);
    }
    for (const Node* control : controls) {
      Mix(std::hash<const void*>()(control), &hash);
    }
    for (const auto& [name, value] : n.attrs()) Mix(HashOf(value), &hash);
  }
  friend bool operator==(const Signature& a, const Signature& b) {
    return &a.node->op() == &b.node->op() && a.inputs == b.inputs &&
           a.controls == b.controls && a.node->device() == b.node->device() &&
           a.node->attrs() == b.node->attrs();
  }

  const Node* node;
  std::vector<Output> inputs;
  std::vector<Node*> controls;
  size_t hash = 0;
};

struct SignatureHash {
  size_t operator()(const Signature& s) const { return s.hash; }
};

}  // namespace

void MergeCommon(Graph& graph) {
  std::unordered_map<Signature, Node*, SignatureHash> seen;
  std::unordered_map<const Node*, Node*> merged;  // into which node
  auto kept = [&](Node* node) {
    auto it = merged.find(node);
    return it == merged.end() ? node : it->second;
  };
  for (Node* node : graph.TopologicalOrder()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Output& input = node->input(i);
      node->set_input(i, {kept(&input.node()), input.index()});
    }
    const std::vector<Node*> controls = node->control_inputs();
    node->set_control_inputs({});
    for (Node* control : controls) node->AddControlInput(kept(control));

    const OpDef& op = node->op();
    if (op.stateful || op.sink || op.mutates > 0) continue;
    const auto [it, fresh] = seen.emplace(Signature(*node), node);
    if (!fresh) merged[node] = it->second;
  }
  graph.Remove([&](const Node& node) { return merged.contains(&node); });
}

}  // namespace sluice::passes
