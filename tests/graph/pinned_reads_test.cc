// Gradients of steps that write variables: of the values that the forward pass
// has read, whatever is written before and after.
#include "graph/pinned_reads.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice {
namespace {

// A chain of ops on a number and a variable, written in between, beside its
// value and its slope by hand.
struct Chain {
  Graph graph;
  Output x, v, y;
  double value = 0.7, slope = 1, state = 1.25;

  explicit Chain(std::mt19937& random) {
    x = y = graph.Placeholder("x", DType::kFloat64, {1, 1});
    v = graph.Variable("v", Filled(state, {1, 1}, DType::kFloat64));
    for (int i = 0; i < 12; ++i) Add(random);
    y = y * y;
    slope *= 2 * value;
    value *= value;
  }

  void Add(std::mt19937& random) {
    const double number = 0.5 + 0.125 * static_cast<double>(random() % 8);
    switch (random() % 6) {
      case 0:
        y = y * v;
        value *= state;
        slope *= state;
        break;
      case 1:
        y = v / (y * y + 1.0);
        slope *= -2 * value * state / std::pow(value * value + 1, 2);
        value = state / (value * value + 1);
        break;
      case 2:
        y = Tanh(y + v);
        value = std::tanh(value + state);
        slope *= 1 - value * value;
        break;
      case 3:
        y = MatMul(y, v);
        value *= state;
        slope *= state;
        break;
      case 4:
        Write([&] { return Assign(v, Fixed(number)); });
        state = number;
        break;
      default:
        Write([&] { return AssignAdd(v, Fixed(0.25)); });
        state += 0.25;
    }
  }

  static Tensor Number(double of) {
    return Tensor::Array<double>({1, 1}, {of});
  }

  Output Fixed(double of) { return graph.Constant(Number(of)); }

  template <typename Writing>
  void Write(const Writing& write) {
    // After all that is there, and before all that comes.
    const ControlScope after(graph, {y});
    y = WithDependencies({Operation(write())}, y);
  }
};

TEST_CASE("gradients are of what was read, whatever is written") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    Chain chain(random);
    std::vector<Output> fetches = {chain.y};
    for (const Recompute recompute : {Recompute::kNone, Recompute::kAll}) {
      fetches.push_back(
          Gradients({chain.y}, {chain.x}, {}, {.recompute = recompute})[0]);
    }
    for (const bool simplify : {true, false}) {
      CAPTURE(simplify);
      Session session(chain.graph, {.simplify = simplify});
      session.Initialize();
      const std::vector<Tensor> got =
          session.Run({{chain.x, Chain::Number(0.7)}}, fetches);
      CHECK(got[0].At(0) == doctest::Approx(chain.value).epsilon(1e-9));
      CHECK(got[1].At(0) == doctest::Approx(chain.slope).epsilon(1e-9));
      CHECK(got[2].At(0) == doctest::Approx(chain.slope).epsilon(1e-9));
      CHECK(session.Read(chain.v).At(0) == chain.state);
    }
  }
}

TEST_CASE("nor do gradients see what they wait for otherwise") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output v = graph.Variable("v", Filled(2, {2}));
  const Output row = graph.Variable("row", Filled(1, {1}, DType::kInt64));
  const Output y = x * v;
  const Output read = Gather(x, row);
  std::vector<Operation> writes;
  {
    const ControlScope after(graph, {y, read});
    writes = {Assign(v, graph.Constant(Tensor::Array<float>({2}, {10, 10}))),
              Assign(row, graph.Constant(Tensor::Array<int64_t>({1}, {0})))};
  }
  const Output ones = graph.Constant(Tensor::Array<float>({2}, {1, 1}));
  const Output seed = WithDependencies(writes, ones);
  std::vector<Output> of_y, of_read;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kAll}) {
    const GradientOptions options = {.recompute = recompute};
    of_y.push_back(Gradients({y}, {x}, {seed}, options)[0]);
    const ControlScope after(graph, writes);
    of_y.push_back(Gradients({y}, {x}, {}, options)[0]);
    // The seed waits for nothing.
    of_y.push_back(Gradients({y}, {x}, {ones}, options)[0]);
    of_read.push_back(Gradients({read}, {x}, {}, options)[0]);
  }
  Session session(graph);
  session.Initialize();
  const auto run = [&](const std::vector<Output>& fetches) {
    session.Write(v, Tensor::Array<float>({2}, {2, 2}));
    session.Write(row, Tensor::Array<int64_t>({1}, {1}));
    return session.Run({{x, Tensor::Array<float>({2}, {3, 4})}}, fetches);
  };
  for (const Tensor& got : run(of_y)) {
    CHECK(got.BitEqual(Tensor::Array<float>({2}, {2, 2})));
  }
  for (const Tensor& got : run(of_read)) {
    CHECK(got.BitEqual(Tensor::Array<float>({2}, {0, 1})));
  }
}

// A gradient that is a collective comes after those that the graph has.
TEST_CASE("nor do gradients see what a collective waits for") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output v = graph.Variable("v", Filled(2, {2}));
  const Output y = AllReduce(x * v, Reduction::kSum);
  {
    const ControlScope after(graph, {y});
    const Output tens = graph.Constant(Tensor::Array<float>({2}, {10, 10}));
    (void)AllReduce(Assign(v, tens), Reduction::kSum);
  }
  std::vector<Output> fetches;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kAll}) {
    fetches.push_back(Gradients({y}, {x}, {}, {.recompute = recompute})[0]);
  }
  Session session(graph);
  session.Initialize();
  for (const Tensor& got :
       session.Run({{x, Tensor::Array<float>({2}, {3, 4})}}, fetches)) {
    CHECK(got.BitEqual(Tensor::Array<float>({2}, {2, 2})));
  }
  CHECK(session.Read(v).At(0) == 10);  // by the exchange before
}

TEST_CASE("what writes nothing has no copies") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1});
  const Output v = graph.Variable("v", Filled(2, {1}));
  (void)Gradients({x * v}, {x});
  for (const auto& node : graph.nodes()) CHECK(!node->Is("Identity"));
}

}  // namespace
}  // namespace sluice
