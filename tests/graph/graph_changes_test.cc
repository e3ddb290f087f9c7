// Changes to a graph that has been built, and the order of its nodes.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

Output Pair(Graph& graph) {
  return graph.Placeholder("x", DType::kFloat32, {2});
}

TEST_CASE("uses are replaced, nodes removed") {
  Graph graph;
  const Output x = Pair(graph);
  const Output y = Neg(x), z = Abs(x);
  const Output sum = y + y;
  sum.node().AddControlInput(&y.node());
  const uint64_t before = graph.version();
  graph.ReplaceUses(y, z, /*controls=*/true);
  CHECK(sum.node().input(0) == z);
  CHECK(sum.node().input(1) == z);
  CHECK_EQ(sum.node().control_inputs(), std::vector<Node*>{&z.node()});
  graph.Remove([&](const Node& node) { return &node == &y.node(); });
  CHECK_EQ(graph.nodes().size(), 3);
  CHECK_EQ(graph.Find("neg"), nullptr);
  CHECK(graph.version() > before);
}

TEST_CASE("every change of a node counts in the graph's version") {
  Graph graph;
  const Output x = Pair(graph);
  Node& y = Neg(x).node();
  Node& other = Abs(x).node();
  uint64_t before = graph.version();
  const auto counts = [&] {
    return std::exchange(before, graph.version()) < graph.version();
  };
  CHECK_FALSE(counts());
  y.set_input(0, other.output(0));
  CHECK(counts());
  y.set_inputs({x});
  CHECK(counts());
  y.set_attr("axis", int64_t{1});
  CHECK(counts());
  y.set_device("/cpu:1");
  CHECK(counts());
  y.set_origin("elsewhere");
  CHECK(counts());
  y.set_location("model.cc:1");
  CHECK(counts());
  y.set_output_types({{DType::kFloat64, {3}}});
  CHECK(counts());
  y.AddControlInput(&other);
  CHECK(counts());
  y.AddControlInput(&other);  // is one already
  CHECK_FALSE(counts());
  y.set_control_inputs({});
  CHECK(counts());
  y.Become(OpTable::Global().Get("Exp"), {}, {x});
  CHECK(counts());
}

TEST_CASE("the topological order is stable") {
  Graph graph;
  const Output a = Pair(graph);
  const Output b = Neg(a), c = Abs(a), d = Exp(a);
  auto order = [&] {
    std::string names;
    for (const Node* node : graph.TopologicalOrder()) {
      names += node->name() + " ";
    }
    return names;
  };
  CHECK_EQ(order(), "x neg abs exp ");
  b.node().set_input(0, d);
  CHECK_EQ(order(), "x abs exp neg ");
  c.node().AddControlInput(&b.node());
  CHECK_EQ(order(), "x exp neg abs ");
  graph.Renumber(graph.TopologicalOrder());
  CHECK_EQ(graph.nodes()[3].get(), &c.node());
  CHECK_EQ(c.node().id(), 3);
  CHECK_EQ(Identity(c).node().id(), 4);
  d.node().AddControlInput(&c.node());
  CHECK(Contains(ErrorOf(order), "lies on a cycle"));
}

}  // namespace
}  // namespace sluice
