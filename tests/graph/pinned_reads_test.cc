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

constexpr double kFirst = 1.25;

// What is done to a number y, with a variable or to it.
enum class Do { kScale, kDivide, kTanh, kMatMul, kAssign, kAdd, kSquare };
struct Link {
  Do what;
  double number = 0;  // that is assigned
};

bool Writes(const Link& link) {
  return link.what == Do::kAssign || link.what == Do::kAdd;
}

// Value, slope and variable, by hand.
struct Numbers {
  double value, slope = 1, state = kFirst;

  void Follow(const Link& link) {
    switch (link.what) {
      case Do::kScale:
      case Do::kMatMul:
        value *= state;
        slope *= state;
        break;
      case Do::kDivide:
        slope *= -2 * value * state / std::pow(value * value + 1, 2);
        value = state / (value * value + 1);
        break;
      case Do::kTanh:
        value = std::tanh(value + state);
        slope *= 1 - value * value;
        break;
      case Do::kAssign:
        state = link.number;
        break;
      case Do::kAdd:
        state += 0.25;
        break;
      case Do::kSquare:
        slope *= 2 * value;
        value *= value;
    }
  }
};

// A chain of ops on a number and a variable, written in between.
struct Chain {
  Graph graph;
  Output x, v, y;
  std::vector<Link> links;
  std::vector<Output> before;  // what each of them gets

  explicit Chain(std::mt19937& random) {
    x = y = graph.Placeholder("x", DType::kFloat64, {1, 1});
    v = graph.Variable("v", Filled(kFirst, {1, 1}, DType::kFloat64));
    for (int i = 0; i < 12; ++i) {
      const double number = 0.5 + 0.125 * static_cast<double>(random() % 8);
      Add({static_cast<Do>(random() % 6), number});
    }
    Add({Do::kSquare});
  }

  void Add(const Link& link) {
    links.push_back(link);
    before.push_back(y);
    switch (link.what) {
      case Do::kScale:
        y = y * v;
        break;
      case Do::kDivide:
        y = v / (y * y + 1.0);
        break;
      case Do::kTanh:
        y = Tanh(y + v);
        break;
      case Do::kMatMul:
        y = MatMul(y, v);
        break;
      case Do::kAssign:
        Write([&] { return Assign(v, Fixed(link.number)); });
        break;
      case Do::kAdd:
        Write([&] { return AssignAdd(v, Fixed(0.25)); });
        break;
      case Do::kSquare:
        y = y * y;
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

  // What y comes to where link `first` gets `value`: links before it do not
  // run, unless it is a write, which waits for what it does not get.
  Numbers From(size_t first, double value) const {
    Numbers numbers{.value = value};
    if (Writes(links[first])) {
      for (size_t i = 0; i < first; ++i) {
        if (Writes(links[i])) numbers.Follow(links[i]);
      }
    }
    for (size_t i = first; i < links.size(); ++i) numbers.Follow(links[i]);
    return numbers;
  }

  // The values of y and of its slopes with respect to what link `first` gets.
  std::vector<Output> Fetches(size_t first) const {
    std::vector<Output> fetches = {y};
    for (const Recompute recompute : {Recompute::kNone, Recompute::kAll}) {
      fetches.push_back(
          Gradients({y}, {before[first]}, {}, {.recompute = recompute})[0]);
    }
    return fetches;
  }
};

TEST_CASE("gradients are of what was read, whatever is written and fed") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    const Chain chain(random);
    const size_t inner = 1 + trial % (chain.links.size() - 1);
    for (const size_t first : {size_t{0}, inner}) {
      CAPTURE(first);
      const std::vector<Output> fetches = chain.Fetches(first);
      std::vector<Feed> feeds = {{chain.before[first], Chain::Number(0.7)}};
      // Nothing asks for what only the links before would read.
      if (first > 0 && Writes(chain.links[first])) {
        feeds.push_back({chain.x, Chain::Number(0.3)});
      }
      const Numbers wanted = chain.From(first, 0.7);
      for (const bool simplify : {true, false}) {
        CAPTURE(simplify);
        Session session(chain.graph, {.simplify = simplify});
        session.Initialize();
        const std::vector<Tensor> got = session.Run(feeds, fetches);
        CHECK(got[0].At(0) == doctest::Approx(wanted.value).epsilon(1e-9));
        CHECK(got[1].At(0) == doctest::Approx(wanted.slope).epsilon(1e-9));
        CHECK(got[2].At(0) == doctest::Approx(wanted.slope).epsilon(1e-9));
        CHECK(session.Read(chain.v).At(0) == wanted.state);
      }
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

// A gradient that is a collective comes after those that the graph has, where a
// step has both.
TEST_CASE("nor do gradients see what a collective waits for") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output v = graph.Variable("v", Filled(2, {2}));
  const Output y = AllReduce(x * v, Reduction::kSum);
  Operation exchange;
  {
    const ControlScope after(graph, {y});
    const Output tens = graph.Constant(Tensor::Array<float>({2}, {10, 10}));
    exchange = AllReduce(Assign(v, tens), Reduction::kSum);
  }
  std::vector<Output> fetches;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kAll}) {
    fetches.push_back(Gradients({y}, {x}, {}, {.recompute = recompute})[0]);
  }
  Session session(graph);
  session.Initialize();
  for (const bool both : {false, true}) {
    CAPTURE(both);
    const auto targets =
        both ? std::vector{exchange} : std::vector<Operation>();
    for (const Tensor& got : session.Run(
             {{x, Tensor::Array<float>({2}, {3, 4})}}, fetches, targets)) {
      CHECK(got.BitEqual(Tensor::Array<float>({2}, {2, 2})));
    }
    CHECK(session.Read(v).At(0) == (both ? 10 : 2));
  }
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
