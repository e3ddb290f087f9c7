// What is fed, and who waits for it; and first values beside running steps.
#include <doctest/doctest.h>

#include <thread>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Ramp;

TEST_CASE("initialising leaves the step number alone") {
  Graph graph;
  const Output v = graph.Variable("v", Zeros({}));
  const Output bad = graph.Variable(
      "bad", {DType::kFloat32, {}, [](Graph& g) {
                return Gather(g.Constant(Ramp({3})),
                              g.Constant(Tensor::Scalar<int64_t>(7)));
              }});
  const Output add = AssignAdd(v, graph.Constant(1, DType::kFloat32));
  Session session(graph);
  session.Initialize({v});
  session.set_step(5);
  CHECK_THROWS_AS(session.Initialize(), Error);
  CHECK(session.step() == 5);
  CHECK_THROWS_AS(session.Initialize({bad}), Error);
  // Beside steps of another thread.
  std::thread other([&] {
    for (int i = 0; i < 300; ++i) session.Run({}, Operation(add));
  });
  for (int i = 0; i < 300; ++i) session.Initialize({v});
  other.join();
  CHECK(session.step() == 5 + 300);
}

TEST_CASE("a node that waits for a fed placeholder does not ask for it") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output ready = graph.Placeholder("ready", DType::kFloat32, {});
  const Output y = WithDependencies({ready}, x * 2);
  for (const bool simplify : {true, false}) {
    Session session(graph, {.simplify = simplify});
    const Tensor value = Tensor::Full(DType::kFloat32, {2}, 3);
    CHECK(session.Run({{x, value}, {ready, Tensor::Scalar(1.0f)}}, y).At(1) ==
          6);
    // Not fed it is missing, as ever.
    CHECK(Contains(ErrorOf([&] { session.Run({{x, value}}, y); }), "'ready'"));
  }
}

TEST_CASE("a node that is fed still runs for those that wait for it") {
  Graph graph;
  const Output v = graph.Variable("v", Zeros({}));
  const Output moved = AssignAdd(v, graph.Constant(1, DType::kFloat32));
  const Output y = WithDependencies({moved}, moved * 2);
  Session session(graph);
  session.Initialize();
  CHECK(session.Run({{moved, Tensor::Scalar(5.0f)}}, y).At(0) == 10);
  CHECK(session.Read(v).At(0) == 1);
}

TEST_CASE("recomputation with fed seeds") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output seed = graph.Placeholder("seed", DType::kFloat32, {2});
  Output y = x;
  for (int i = 0; i < 9; ++i) y = Tanh(y * 1.1);
  const Outputs dx =
      Gradients({y}, {x}, {seed}, {.recompute = Recompute::kAll});
  Session session(graph);
  const Tensor ones = Tensor::Full(DType::kFloat32, {2}, 1);
  CHECK(session.Run({{x, ones}, {seed, ones}}, dx[0]).At(0) > 0);
}

TEST_CASE("an output that is fed twice is refused") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {});
  Session session(graph);
  CHECK(Contains(ErrorOf([&] {
                   session.Run(
                       {{x, Tensor::Scalar(1.0f)}, {x, Tensor::Scalar(2.0f)}},
                       x + 1);
                 }),
                 "'x' is fed twice (session_feeds_test.cc"));
}

}  // namespace
}  // namespace sluice
