// Folded graphs: every node in one box, every edge where the boxes of its ends
// are, and layers, gradients and optimizers told apart.
#include "graph/text/fold.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/compile/extract.h"
#include "graph/text/text.h"
#include "models/optim/optimizers.h"
#include "tests/support/named_graph.h"

namespace sluice {
namespace {

using testing::NamedGraph;
constexpr int kNone = FoldedGraph::kNone;

void CheckBoxes(const Graph& graph, const FoldedGraph& folded) {
  std::map<const Node*, int> box_of;
  for (size_t b = 0; b < folded.boxes.size(); ++b) {
    const FoldedGraph::Box& box = folded.boxes[b];
    CHECK_FALSE((box.nodes.empty() && box.values.empty()));
    for (const auto* list : {&box.nodes, &box.values}) {
      for (const Node* node : *list) {
        CHECK(IsValue(*node) == (list == &box.values));
        CHECK(box_of.emplace(node, static_cast<int>(b)).second);
      }
    }
    if (box.cluster != kNone) CHECK(box.part == Part::kForward);
    CHECK((box.of == FoldedGraph::Place() || box.part == Part::kBackward));
  }
  CHECK_EQ(box_of.size(), graph.nodes().size());
  for (const auto& node : graph.nodes()) {
    CHECK_EQ(box_of.at(node.get()), folded.box_of[node->id()]);
  }
}

void CheckClusters(const FoldedGraph& folded) {
  std::set<std::string> names;
  for (size_t c = 0; c < folded.clusters.size(); ++c) {
    const FoldedGraph::Cluster& cluster = folded.clusters[c];
    CHECK(names.insert(cluster.name).second);
    CHECK(cluster.parent < static_cast<int>(c));
    if (cluster.parent != kNone) {
      const std::string& around = folded.clusters[cluster.parent].name;
      CHECK_EQ(cluster.name.rfind(around + "/", 0), 0);
    }
    int inside = folded.boxes.at(cluster.first_box).cluster;
    while (inside != kNone && inside != static_cast<int>(c)) {
      inside = folded.clusters[inside].parent;
    }
    CHECK_EQ(inside, static_cast<int>(c));
  }
}

// The edges as the header says they are, from the boxes alone.
void CheckEdges(const Graph& graph, const FoldedGraph& folded) {
  using Ends = std::tuple<int, int, int>;  // cluster or box; box
  std::map<Ends, std::pair<std::set<std::string>, bool>> wanted, got;
  const auto ends = [&](const Node& from, const Node& to, Ends* result) {
    const int source = folded.box_of[from.id()],
              target = folded.box_of[to.id()];
    if (from.Is("Variable") || from.Is("Const") || source == target) {
      return false;
    }
    const FoldedGraph::Box& box = folded.boxes[source];
    const bool whole = box.part == Part::kForward && box.cluster != kNone &&
                       folded.boxes[target].part != Part::kForward;
    *result =
        whole ? Ends(box.cluster, kNone, target) : Ends(kNone, source, target);
    return true;
  };
  for (const auto& node : graph.nodes()) {
    Ends at;
    for (const Output& input : node->inputs()) {
      if (ends(input.node(), *node, &at)) wanted[at].first.insert(input.name());
    }
    for (const Node* control : node->control_inputs()) {
      if (ends(*control, *node, &at)) wanted[at].second = true;
    }
  }
  for (const FoldedGraph::Edge& edge : folded.edges) {
    const Ends at(edge.from.cluster, edge.from.box, edge.to);
    CHECK_FALSE(got.contains(at));
    CHECK(edge.from.box != edge.to);
    auto& [tensors, control] = got[at];
    for (const Output& tensor : edge.tensors) {
      CHECK(tensors.insert(tensor.name()).second);
    }
    control = edge.control;
  }
  CHECK(got == wanted);
}

TEST_CASE("random graphs fold to any size, and nothing is lost") {
  bool opened = false, folded_away = false;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    NamedGraph random(seed);
    const Graph& graph = random.graph();
    for (const int most : {0, 3, 10, 40, 1000}) {
      CAPTURE(most);
      const FoldedGraph folded = Fold(graph, most);
      CheckBoxes(graph, folded);
      CheckClusters(folded);
      CheckEdges(graph, folded);
      CHECK(folded.boxes.size() <= static_cast<size_t>(std::max(most, 3)));
      opened |= !folded.clusters.empty();
      folded_away |= folded.boxes.size() < graph.nodes().size() / 4;
    }
  }
  CHECK(opened);
  CHECK(folded_away);
}

TEST_CASE("what a node is for is in its name") {
  const auto of = [](const char* name) {
    Graph graph;
    graph.AddRaw(name, name, OpTable::Global().Get("NoOp"), {}, {}, {});
    return Roles(graph).part(*graph.nodes()[0]);
  };
  for (const char* name :
       {"x", "gradients", "train", "fc/gradients", "x/train/y", "gradients_1/x",
        "trains/x", "/train/x"}) {
    CAPTURE(name);
    CHECK(of(name) == Part::kForward);
  }
  for (const char* name : {"gradients/x", "a/gradients/x", "gradients/train/x",
                           "train/gradients/x", "gradients/gradients/x/y"}) {
    CAPTURE(name);
    CHECK(of(name) == Part::kBackward);
  }
  CHECK(of("train/x") == Part::kUpdate);
  CHECK(of("train/a/b") == Part::kUpdate);

  CHECK_EQ(DifferentiatedName("gradients/fc/relu/relu_grad"), "fc/relu");
  CHECK_EQ(DifferentiatedName("gradients/recompute/fc/relu"), "fc/relu");
  CHECK_EQ(DifferentiatedName("a/gradients/gradients/fc/x"), "fc");
  CHECK_EQ(DifferentiatedName("gradients/add"), "");
}

// Two residual blocks of two layers each, written as models are, and a loss.
struct Residual {
  Graph graph;
  std::unique_ptr<Graph> step;

  Residual() {
    const Output image = graph.Placeholder("image", DType::kFloat32, {8, 4});
    Scope root(graph);
    Output x = Layer(root / "stem", image);
    for (const char* block : {"0", "1"}) {
      const Scope scope = root / "body" / block;
      Output y = Relu(Layer(scope / "fc1", x));
      y = Layer(scope / "fc2", y);
      x = Relu(y + x);
    }
    const Output loss = Mean(Square(x));
    const Operation train = optimizers::Momentum(0.1, 0.9).Minimize(loss);
    StepRequest request;
    request.feeds = {{image, {8, 4}}};
    request.fetches = {loss};
    request.targets = {train};
    step = ExtractStep(graph, request).ValueOrThrow();
  }

  Output Layer(const Scope& scope, const Output& x) {
    const NameScope names(scope);
    const Output weights = graph.Variable("weights", Filled(0.5, {4, 4}));
    return BiasAdd(MatMul(x, weights), graph.Variable("bias", Zeros({4})));
  }
};

std::vector<std::string> Described(const FoldedGraph& folded) {
  std::vector<std::string> lines;
  for (const FoldedGraph::Box& box : folded.boxes) {
    std::string line = box.part == Part::kForward    ? ""
                       : box.part == Part::kBackward ? "gradients of "
                                                     : "update ";
    if (box.cluster != kNone) {
      line += "[" + folded.clusters[box.cluster].name + "] ";
    }
    lines.push_back(line + box.name);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

using Lines = std::vector<std::string>;

TEST_CASE("a training step folds into its layers") {
  const Residual model;
  const Lines outside = {
      "_feed_0",           "_fetch_0", "_targets", "gradients of mean",
      "gradients of stem", "mean",     "stem",     "unused",
      "update train"};
  const auto with = [&](Lines lines) {
    lines.insert(lines.end(), outside.begin(), outside.end());
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  // The sums and activations between the layers are in their blocks; so is the
  // square, which keeps the shape too.
  const Lines open =
      with({"[body/0] add", "[body/0] body/0/fc1", "[body/0] body/0/fc2",
            "[body/0] relu", "[body/0] relu_1", "[body/1] add_1",
            "[body/1] body/1/fc1", "[body/1] body/1/fc2", "[body/1] relu_2",
            "[body/1] relu_3", "[body/1] square", "gradients of body/0",
            "gradients of body/1"});
  CHECK_EQ(Described(Fold(*model.step, 100)), open);
  CHECK_EQ(Described(Fold(*model.step, static_cast<int>(open.size()))), open);
  const Lines blocks =
      with({"[body] body/0", "[body] body/1", "gradients of body"});
  CHECK_EQ(Described(Fold(*model.step, static_cast<int>(open.size()) - 1)),
           blocks);
  CHECK_EQ(Described(Fold(*model.step, static_cast<int>(blocks.size()) - 1)),
           with({"body", "gradients of body"}));
  CHECK_EQ(Described(Fold(*model.step, 1)),
           Lines{"", "gradients of ", "update train"});
}

TEST_CASE(
    "variables are with the layer that reads them, slots with the update") {
  const Residual model;
  const FoldedGraph folded = Fold(*model.step, 100);
  const auto box = [&](const char* name) {
    return folded.boxes[folded.box_of[model.step->Get(name).node().id()]];
  };
  CHECK_EQ(box("body/0/fc1/weights").name, "body/0/fc1");
  CHECK_EQ(box("body/0/fc1/weights/velocity").name, "train");
  CHECK_EQ(box("stem/bias").values.size(), 2);
  CHECK_EQ(box("stem/bias").nodes.size(), 2);

  // The whole graph has the initializers, too.
  const FoldedGraph whole = Fold(model.graph, 100);
  for (const Node* node : model.graph.Initializers()) {
    CAPTURE(node->name());
    const size_t init = node->name().find("/init");
    REQUIRE(init != std::string::npos);
    const Node& variable = model.graph.Get(node->name().substr(0, init)).node();
    CHECK_EQ(whole.box_of[node->id()], whole.box_of[variable.id()]);
  }
}

TEST_CASE("gradients stay with their layer when passes took it away") {
  const Residual model;
  std::string text = PrintGraph(*model.step);
  // As if a pass had put both products into others' places.
  for (const std::string from : {"body/0/fc1/mat_mul", "body/1/fc2/mat_mul"}) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
      const bool gradient =
          at >= 10 && text.compare(at - 10, 10, "gradients/") == 0;
      text.replace(at, from.size(), gradient ? from : from + "_fused");
      at += from.size() + 6;
    }
  }
  const auto changed = ParseGraph(text).ValueOrThrow();
  REQUIRE(changed->Find("body/0/fc1/mat_mul") == nullptr);
  CHECK_EQ(Described(Fold(*changed, 100)), Described(Fold(*model.step, 100)));
}

TEST_CASE("a graph without nodes, of one, and with a cycle") {
  Graph graph;
  CHECK(Fold(graph, 10).boxes.empty());
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  CHECK_EQ(Described(Fold(graph, 10)), Lines{"unused"});
  CHECK_EQ(Described(Fold(graph, 0)), Lines{""});
  const Output y = Relu(Relu(x));
  CHECK_EQ(Described(Fold(graph, 10)), Lines{"relu", "relu_1", "x"});
  y.node().input(0).node().set_input(0, y);
  CHECK_THROWS_AS(Fold(graph, 10), Error);
}

}  // namespace
}  // namespace sluice
