// Graphs as deep as a program's loop makes them: what walks over them does not
// call itself for each node, which would take more stack than there is.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/status.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/row_pieces.h"

namespace sluice {
namespace {

// Of 8 MiB of stack each has less than 84 bytes.
constexpr int kDeep = 100'000;

TEST_CASE("groups in groups may be made conditional") {
  Graph graph;
  const Output v = graph.Variable("v", Filled(1, {}));
  const Output write = AssignAdd(v, 1);
  Operation group = write;
  for (int i = 0; i < kDeep; ++i) group = Group(graph, {group});
  MakeConditional(group, graph.Constant(Tensor::Scalar(false)));
  CHECK(write.node().num_inputs() == 3);
}

// As many steps, and a sum of what is twice the same in each: by paths there
// are 2^kTwice of them.
Output InManySteps(Output x) {
  constexpr int kTwice = 64;
  for (int i = 0; i < kDeep; ++i) x = -x;
  for (int i = 0; i < kTwice; ++i) x = (x + x) * 0.5;
  return x;
}

TEST_CASE("first values of rows on several devices") {
  Graph graph;
  const Initializer first = {DType::kFloat32, {6, 2}, [](Graph& g) {
                               return InManySteps(Filled(3, {6, 2}).value(g));
                             }};
  const Output table = graph.Variable("table", first);
  SpreadRows(table.node(), {"/cpu:1", "/cpu:2"});
  Group(graph, {Operation(graph.Initializers().at(0))},
        std::string(passes::kTargets));
  ThrowIfError(passes::SpreadVariables(graph));
  int64_t assigned = 0;
  for (const auto& node : graph.nodes()) {
    if (!node->Is("Assign")) continue;
    CHECK(node->input(1).shape() == node->input(0).shape());
    assigned += node->input(0).shape()[0];
  }
  CHECK(assigned == 6);
}

TEST_CASE("parts of parts, each for another device, in half") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4, 4});
  Output part;
  {
    const DeviceScope there(graph, "/cpu:1");
    part = MatMul(x, x);
  }
  for (int i = 0; i < kDeep; ++i) {
    const DeviceScope there(graph, i % 2 == 0 ? "/cpu:1" : "/cpu:0");
    part = Slice(part, {0, 0}, {4, 4});
  }
  const DeviceScope there(graph, kDeep % 2 == 0 ? "/cpu:1" : "/cpu:0");
  const Output last = MatMul(part, part);
  Group(graph, {last}, std::string(passes::kTargets));
  ThrowIfError(passes::MixPrecision(graph, DType::kFloat16));
  CHECK(part.dtype() == DType::kFloat16);
}

}  // namespace
}  // namespace sluice
