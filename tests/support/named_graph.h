// Random graphs whose names are the point: scopes in scopes, gradients of what
// is there and of what is not, optimizers, and names that break text formats.
#ifndef SLUICE_TESTS_SUPPORT_NAMED_GRAPH_H_
#define SLUICE_TESTS_SUPPORT_NAMED_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/tensor.h"
#include "graph/graph.h"

namespace sluice::testing {

class NamedGraph {
 public:
  explicit NamedGraph(uint32_t seed) : random_(seed) {
    const int nodes = static_cast<int>(random_() % 120);
    for (int i = 0; i < nodes; ++i) Add();
    if (Chance(2)) Thin();
  }

  Graph& graph() { return graph_; }

 private:
  bool Chance(uint32_t of) { return random_() % of == 0; }

  std::string Word() {
    static const char* const kWords[] = {
        "layer1",      "layer2",    "0",           "1",         "conv",
        "bn",          "gradients", "train",       "recompute", "add",
        "relu",        "weights",   "gradients_1", "a\"b",      "back\\",
        "{",           "}",         "];",          "<b>&lt;",   "new\nline",
        "caf\xc3\xa9", "\xff",      "\xe2\x82",    "->",        "//",
        "subgraph x",  "",          "\t",          "trains"};
    return kWords[random_() % std::size(kWords)];
  }

  std::string Name() {
    std::string name;
    if (Chance(4)) name = "gradients/";
    if (Chance(8)) name += "train/";
    // Below a node that is there, as gradients and slots are.
    if (!graph_.nodes().empty() && Chance(2)) name += Any().name() + "/";
    for (uint32_t i = 0; i < random_() % 4; ++i) name += Word() + "/";
    return graph_.UniqueName(name + Word());
  }

  Node& Any() { return *graph_.nodes()[random_() % graph_.nodes().size()]; }

  void Add() {
    const std::string name = Name();
    const TensorType type = {DType::kFloat32, Chance(4) ? Shape{2} : Shape{3}};
    const auto add = [&](const char* op, Attributes attrs,
                         std::vector<Output> inputs, int outputs = 1) {
      Node& node = graph_.AddRaw(name, name, OpTable::Global().Get(op),
                                 std::move(attrs), std::move(inputs),
                                 std::vector<TensorType>(outputs, type));
      while (Chance(3)) {
        Node& control = Any();
        if (&control != &node) node.AddControlInput(&control);
      }
      if (Chance(3)) node.set_device("/cpu:" + std::to_string(random_() % 2));
    };
    std::vector<Output> values;
    for (int i = 0; i < 3 && !graph_.nodes().empty(); ++i) {
      const Node& from = Any();
      if (from.num_outputs() == 0) continue;
      const auto outputs = static_cast<uint32_t>(from.num_outputs());
      values.push_back(from.output(static_cast<int>(random_() % outputs)));
    }
    switch (values.empty() ? random_() % 4 : random_() % 10) {
      case 0:
        return add("Variable",
                   {{"dtype", type.dtype},
                    {"shape", type.shape},
                    {"trainable", Chance(2)}},
                   {});
      case 1:
        return add("Const", {{"value", Tensor(type.dtype, type.shape)}}, {});
      case 2:
        return add("Placeholder",
                   {{"dtype", type.dtype}, {"shape", type.shape}}, {});
      case 3:
        return add("NoOp", {}, {}, 0);
      case 4:
        return add("Fetch", {{"index", int64_t{0}}}, {values[0]}, 0);
      case 5:
        return add("Split", {}, {values[0]}, 3);
      case 6:
        return add("Relu", {}, {values[0]});
      default:
        return add("AddN", {}, std::move(values));
    }
  }

  // Takes nodes out as passes do, which leaves gaps among the ids.
  void Thin() {
    std::unordered_set<const Node*> kept;
    for (auto it = graph_.nodes().rbegin(); it != graph_.nodes().rend(); ++it) {
      if (!kept.contains(it->get()) && Chance(3)) continue;
      kept.insert(it->get());
      for (const Output& input : (*it)->inputs()) kept.insert(&input.node());
      for (const Node* control : (*it)->control_inputs()) kept.insert(control);
    }
    graph_.Remove([&](const Node& node) { return !kept.contains(&node); });
  }

  Graph graph_;
  std::mt19937 random_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_NAMED_GRAPH_H_
