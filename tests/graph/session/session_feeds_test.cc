// What is fed, and who waits for it; and first values beside running steps.
#include <doctest/doctest.h>

#include <algorithm>
#include <thread>
#include <vector>

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

void CheckNear(const Tensor& got, const Tensor& wanted) {
  REQUIRE(got.shape() == wanted.shape());
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    CHECK(got.At(i) == doctest::Approx(wanted.At(i)).epsilon(1e-5));
  }
}

TEST_CASE("what is computed again of a fed node is fed, too") {
  constexpr size_t kLayers = 9;
  for (size_t fed = 1; fed < kLayers; ++fed) {
    for (const bool by_fed : {true, false}) {
      CAPTURE(fed);
      CAPTURE(by_fed);
      const auto slope = [&](Recompute recompute) {
        Graph graph;
        const Output x = graph.Placeholder("x", DType::kFloat32, {4});
        Outputs y = {x};
        while (y.size() <= kLayers) y.push_back(Tanh(y.back() * 1.1));
        const Outputs dx = Gradients({y.back()}, {by_fed ? y[fed] : x}, {},
                                     {.recompute = recompute});
        const Tensor value = Tensor::Full(DType::kFloat32, {4}, 0.25);
        return Session(graph).Run({{x, Ramp({4})}, {y[fed], value}}, dx[0]);
      };
      CheckNear(slope(Recompute::kAll), slope(Recompute::kNone));
    }
  }
}

TEST_CASE("what is computed again does not wait for a fed gradient") {
  constexpr size_t kLayers = 9;
  const Tensor ones = Tensor::Full(DType::kFloat32, {4}, 1);
  for (size_t fed = 1; fed < kLayers; ++fed) {
    CAPTURE(fed);
    const auto slope = [&](Recompute recompute) {
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, {4});
      const Output label = graph.Placeholder("label", DType::kFloat32, {4});
      const Output runs = graph.Variable("runs", Zeros({}));
      const Output run = AssignAdd(runs, graph.Constant(1, DType::kFloat32));
      Outputs y = {x};
      while (y.size() <= kLayers) y.push_back(Tanh(y.back() * 1.1));
      const Output loss =
          Sum(Square(WithDependencies({run}, y.back()) - label));
      const Outputs dy =
          Gradients({loss}, {x, y[fed]}, {}, {.recompute = recompute});
      Session session(graph);
      session.Initialize();
      // Neither a label nor the loss's update is of use.
      const Tensor dx = session.Run({{x, Ramp({4})}, {dy[1], ones}}, dy[0]);
      CHECK(session.Read(runs).At(0) == 0);
      return dx;
    };
    CheckNear(slope(Recompute::kAll), slope(Recompute::kNone));
  }
}

TEST_CASE("a fed normalisation is fed to what has it again, too") {
  const auto slope = [](Recompute recompute) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {6, 4});
    const auto channels = [&](double value) {
      return graph.Constant(Tensor::Full(DType::kFloat32, {4}, value));
    };
    const Output y =
        BatchNorm(x, channels(1), channels(0), channels(0), channels(1)).y;
    const Output w = graph.Constant(Ramp({4, 32}));
    const Output loss = Sum(Square(MatMul(Relu(y), w)));
    const Outputs slopes =
        Gradients({loss}, {w, x}, {}, {.recompute = recompute});
    // It is there again at all.
    if (recompute == Recompute::kNorms) {
      CHECK(std::any_of(
          graph.nodes().begin(), graph.nodes().end(),
          [](const auto& node) { return node->Is("BatchNormApply"); }));
    }
    const Tensor value = Tensor::Full(DType::kFloat32, {6, 4}, 0.5);
    return Session(graph).Run({{x, Ramp({6, 4})}, {y, value}}, slopes[0]);
  };
  const Tensor wanted = slope(Recompute::kNone);
  CheckNear(slope(Recompute::kNorms), wanted);
  CheckNear(slope(Recompute::kAll), wanted);
}

TEST_CASE("messages call what is fed by its own name") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4});
  const Output dims = graph.Placeholder("dims", DType::kInt64, {2});
  const Output y = Reshape(x, dims);
  Session session(graph);
  CHECK(Contains(ErrorOf([&] {
                   session.Run({{x, Ramp({4})},
                                {dims, Tensor::Array<int64_t>({2}, {2, 2})}},
                               y);
                 }),
                 "it depends on the value of 'dims'"));
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

TEST_CASE("names that a step gives are no other node's") {
  const Tensor one = Tensor::Scalar(1.0f);
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {});
  const Output z = graph.Placeholder("_feed_0", DType::kFloat32, {});
  const auto neg = [&](const Output& of, const char* name) {
    return graph.Add({"Neg", {of}, {}, name}).output(0);
  };
  // What is fetched has any.
  const Output fetched = neg(x, "_fetch_0");
  const Output y = neg(x, "_feed_1"), targets = neg(x, "_targets");
  Session session(graph);
  const std::vector<Tensor> got =
      session.Run({{x, one}}, {neg(fetched, "_fetch_1"), fetched, x});
  CHECK(got[0].At(0) == 1);
  CHECK(got[1].At(0) == -1);
  CHECK(got[2].At(0) == 1);
  for (const Output& own : {z, y}) {
    CHECK(Contains(ErrorOf([&] {
                     session.Run({{x, one}}, own + 1);
                   }),
                   own.node().Describe() +
                       ": names that begin with '_feed_' are a session's own "
                       "(session_feeds_test.cc"));
  }
  CHECK(Contains(ErrorOf([&] {
                   session.Run({{x, one}}, x, {targets});
                 }),
                 "Neg '_targets': the name '_targets' is a session's own"));
}

// Where a step's results are the next one's feeds there is no need of more.
TEST_CASE("fetches may be in the memory of feeds") {
  const Shape shape{2, 16};
  const Tensor x_value = Ramp(shape);
  const Tensor v_value = Tensor::Full(DType::kFloat32, shape, 3);
  const auto check = [&](const SessionOptions& options) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, shape);
    const Output v = graph.Placeholder("v", DType::kFloat32, shape);
    const Output sum = x + v;
    Output difference;
    {
      const DeviceScope last(graph, options.devices.back());
      difference = Tanh(v - x) * 0.5 - x;
    }
    Session session(graph, options);
    PreparedStep step =
        session.Prepare({{x, shape}, {v, shape}}, {sum, difference});
    std::vector<Tensor> wanted = step.MakeFetches();
    step.Run(std::vector{x_value, v_value}, wanted);
    // Twice, and from other memory in between.
    for (int i = 0; i < 2; ++i) {
      std::vector<Tensor> state = {x_value.Clone(), v_value.Clone()};
      step.Run(state, state);
      CHECK(state[0].BitEqual(wanted[0]));
      CHECK(state[1].BitEqual(wanted[1]));
      std::vector<Tensor> again = step.MakeFetches();
      step.Run(std::vector{x_value, v_value}, again);
      CHECK(again[1].BitEqual(wanted[1]));
    }
    // A row of each feed.
    const Tensor rows(DType::kFloat32, {4, 16});
    std::vector<Tensor> feeds = {rows.Rows(0, 2), rows.Rows(2, 4)};
    std::copy_n(x_value.data<float>(), 32, feeds[0].data<float>());
    std::copy_n(v_value.data<float>(), 32, feeds[1].data<float>());
    std::vector<Tensor> fetches = {rows.Rows(1, 3),
                                   Tensor(DType::kFloat32, shape)};
    step.Run(feeds, fetches);
    CHECK(fetches[0].BitEqual(wanted[0]));
    CHECK(fetches[1].BitEqual(wanted[1]));
  };
  for (const bool fuse : {true, false}) {
    CAPTURE(fuse);
    check({.executor = ExecutorMode::kSerial, .fuse = fuse});
    check({.executor = ExecutorMode::kDataflow, .fuse = fuse});
    check({.devices = {"/cpu:0", "/cpu:1"}, .fuse = fuse});
  }
}

TEST_CASE("fetches that share memory are refused") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
  const Output sum = x + 1, product = x * 2;
  Session session(graph);
  const auto run = [&](int64_t n, std::vector<Output> fetched,
                       std::vector<Tensor> fetches) {
    const std::vector<Tensor> feeds = {Tensor::Full(DType::kFloat32, {n}, 3)};
    PreparedStep step = session.Prepare({{x, {n}}}, fetched);
    return step.TryRun(feeds, fetches);
  };
  const Tensor rows(DType::kFloat32, {9});
  const Status status =
      run(4, {sum, product}, {rows.Rows(0, 4), rows.Rows(0, 4)});
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(Contains(status.message(), "fetches '" + sum.name() + "' and '" +
                                       product.name() + "' share memory"));
  CHECK_FALSE(run(4, {sum, sum}, {rows.Rows(0, 4), rows.Rows(0, 4)}).ok());
  CHECK_FALSE(run(5, {sum, product}, {rows.Rows(0, 5), rows.Rows(4, 9)}).ok());
  CHECK_FALSE(run(5, {sum, product}, {rows.Rows(4, 9), rows.Rows(0, 5)}).ok());
  // Beside each other, in either order.
  for (const int64_t first : {0, 4}) {
    const Tensor sums = rows.Rows(first, first + 4);
    const Tensor products = rows.Rows(4 - first, 8 - first);
    CHECK(run(4, {sum, product}, {sums, products}).ok());
    for (int64_t i = 0; i < 4; ++i) {
      CHECK(sums.At(i) == 4);
      CHECK(products.At(i) == 6);
    }
  }
  // Nothing is written to what has no elements.
  CHECK(run(0, {sum, product}, {rows.Rows(2, 2), rows.Rows(2, 2)}).ok());
}

TEST_CASE("a variable that is fed cannot be updated") {
  Graph graph;
  const Output weights = graph.Variable("weights", Zeros({}));
  const Output update = AssignAdd(weights, graph.Constant(1, DType::kFloat32));
  Session session(graph);
  session.Initialize();
  const Tensor three = Tensor::Scalar(3.0f);
  CHECK(Contains(ErrorOf([&] {
                   session.Run({{weights, three}}, Operation(update));
                 }),
                 "feed of 'weights': " + update.node().Describe() +
                     " updates it, and what is fed cannot be updated "
                     "(session_feeds_test.cc"));
  // It may be fed where nothing of the step updates it.
  const Output both = weights + update;
  CHECK(session.Run({{weights, three}, {update, Tensor::Scalar(5.0f)}}, both)
            .At(0) == 8);
  CHECK(session.Read(weights).At(0) == 0);
}

}  // namespace
}  // namespace sluice
