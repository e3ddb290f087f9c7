// Recomputation of activations: the same results with less memory.
#include "graph/recompute.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/builder.h"
#include "graph/compile/extract.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/support/checked.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

constexpr int kBlocks = 16;

// A residual network with everything that is awkward: two users of one value,
// random ops, statistics that the forward pass updates.
struct Network {
  Graph graph;
  Output loss;
  Operation train;

  explicit Network(Recompute recompute) {
    Scope root(graph);
    Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 8, 8, 3});
    x = layers::Conv2D(root / "stem", x, {.filters = 16, .kernel = 3});
    for (int i = 0; i < kBlocks; ++i) {
      const Scope scope = root / ("block" + std::to_string(i));
      Output y = layers::Conv2D(scope / "conv", x, {.filters = 16});
      y = layers::BatchNorm(scope / "norm", y, {.training = true});
      y = layers::Dropout(scope / "dropout", Relu(y),
                          {.rate = 0.1, .training = true});
      x = Relu(x + y);
    }
    loss = Mean(Square(
        layers::Dense(root / "logits", layers::Flatten(x), {.units = 4})));
    train = optimizers::Momentum(0.01).WithRecompute(recompute).Minimize(loss);
  }
};

Tensor Images() {
  Tensor images(DType::kFloat32, {4, 8, 8, 3});
  for (int64_t i = 0; i < images.elements(); ++i) {
    images.data<float>()[i] = std::sin(0.37f * static_cast<float>(i));
  }
  return images;
}

struct Trained {
  std::vector<Tensor> losses, variables;
  StepInfo info;
};
Trained Train(const Network& network, bool simplify) {
  Session session(network.graph, {.simplify = simplify});
  session.Initialize();
  const Output x = network.graph.Get("x");
  const Tensor images = Images();
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    trained.losses.push_back(
        session.Run({{x, images}}, network.loss, {network.train}));
  }
  for (const Output& variable : network.graph.Variables()) {
    trained.variables.push_back(session.Read(variable));
  }
  trained.info =
      session.Prepare({{x, images.shape()}}, {network.loss}, {network.train})
          .info();
  return trained;
}

void CheckSameBits(const Trained& a, const Trained& b) {
  for (size_t i = 0; i < a.losses.size(); ++i) {
    CHECK(a.losses[i].BitEqual(b.losses[i]));
  }
  REQUIRE(a.variables.size() == b.variables.size());
  for (size_t i = 0; i < a.variables.size(); ++i) {
    CHECK(a.variables[i].BitEqual(b.variables[i]));
  }
}

TEST_CASE("training with recomputation has the same bits and less memory") {
  const Network plain(Recompute::kNone), recomputing(Recompute::kAll);
  for (const bool simplify : {true, false}) {
    CAPTURE(simplify);
    const Trained a = Train(plain, simplify);
    const Trained b = Train(recomputing, simplify);
    CheckSameBits(a, b);
    CHECK(b.info.nodes > a.info.nodes);
    // 16 blocks: about 4 segments of 4 blocks, of which one at a time is whole.
    if (!testing::StepsAreChecked()) {
      CHECK(b.info.arena_bytes < 0.6 * static_cast<double>(a.info.arena_bytes));
    }
    // Computed again once, not more often.
    CHECK(b.info.nodes < 1.6 * static_cast<double>(a.info.nodes));
  }
}

TEST_CASE("no normalised activation again for a gradient that has a mask") {
  const Network plain(Recompute::kNone), recomputing(Recompute::kNorms);
  const Trained a = Train(plain, /*simplify=*/true);
  const Trained b = Train(recomputing, /*simplify=*/true);
  CheckSameBits(a, b);
  CHECK(b.info.nodes == a.info.nodes);
  CHECK(b.info.arena_bytes == a.info.arena_bytes);
}

// Two stages of two bottlenecks, as in ResNet-50.
struct SmallResNet {
  Graph graph;
  Output loss;
  std::vector<Output> gradients;

  explicit SmallResNet(Recompute recompute) {
    Scope root(graph);
    Output x = graph.Placeholder("x", DType::kFloat32, {4, 8, 8, 3});
    x = layers::MaxPool(ConvNorm(root / "stem", x, 16, 3, Relu), {.size = 2});
    for (int stage = 0; stage < 2; ++stage) {
      const int64_t filters = 8 << stage;
      for (int block = 0; block < 2; ++block) {
        const Scope scope =
            root / ("block" + std::to_string(stage) + std::to_string(block));
        Output y = ConvNorm(scope / "1", x, filters, 1, Relu);
        y = ConvNorm(scope / "2", y, filters, 3, Relu);
        y = ConvNorm(scope / "3", y, 4 * filters, 1, nullptr);
        if (block == 0) {
          x = ConvNorm(scope / "shortcut", x, 4 * filters, 1, nullptr);
        }
        x = Relu(y + x);
      }
    }
    x = layers::GlobalAvgPool(x);
    loss = Mean(Square(layers::Dense(root / "logits", x, {.units = 4})));
    // So large that few are below float16's range.
    gradients = Gradients({loss}, graph.TrainableVariables(),
                          {graph.Constant(1024, DType::kFloat32)}, {recompute});
  }

  static Output ConvNorm(const Scope& scope, const Output& x, int64_t filters,
                         int64_t kernel, const layers::Activation& activation) {
    const Output y = layers::Conv2D(
        scope, x, {.filters = filters, .kernel = kernel, .use_bias = false});
    return layers::BatchNorm(scope / "norm", y,
                             {.training = true, .activation = activation});
  }

  // Of the nodes that the gradients and statistics need.
  int Count(const char* op) const {
    const auto step =
        ExtractStep(graph, {{}, gradients, graph.updates()}).ValueOrThrow();
    return static_cast<int>(
        std::count_if(step->nodes().begin(), step->nodes().end(),
                      [&](const auto& node) { return node->Is(op); }));
  }

  struct Results {
    std::vector<Tensor> tensors;  // gradients, then variables
    int64_t arena_bytes = 0;
  };
  Results Run(const SessionOptions& options) const {
    Session session(graph, options);
    session.Initialize();
    const Tensor images = Images();
    const Output x = graph.Get("x");
    Results results = {session.Run({{x, images}}, gradients, graph.updates()),
                       0};
    for (const Output& variable : graph.Variables()) {
      results.tensors.push_back(session.Read(variable));
    }
    results.arena_bytes = static_cast<int64_t>(
        session.Prepare({{x, images.shape()}}, gradients, graph.updates())
            .info()
            .arena_bytes);
    return results;
  }
};

TEST_CASE("normalised activations again: the same bits, no product twice") {
  const SmallResNet plain(Recompute::kNone), again(Recompute::kNorms);
  for (const char* op : {"Conv2D", "BatchNorm", "Assign", "MaxPool"}) {
    CHECK_MESSAGE(again.Count(op) == plain.Count(op), op);
  }
  // All 15, but for the last addition's. The result of each stage's first block
  // is kept.
  CHECK(again.Count("BatchNormApply") == 15 - 1 - 2 * 2);
  CHECK(again.Count("Relu") - plain.Count("Relu") == 1 + 8 + 1);
  for (const Precision precision : {Precision::kFloat32, Precision::kFloat16}) {
    for (const bool fuse : {true, false}) {
      CAPTURE(NameOf(precision));
      CAPTURE(fuse);
      const SessionOptions options = {.precision = precision, .fuse = fuse};
      const auto a = plain.Run(options), b = again.Run(options);
      REQUIRE(a.tensors.size() == b.tensors.size());
      for (size_t i = 0; i < a.tensors.size(); ++i) {
        CHECK(a.tensors[i].BitEqual(b.tensors[i]));
      }
      if (!testing::StepsAreChecked()) CHECK(b.arena_bytes < a.arena_bytes);
    }
  }
}

TEST_CASE("all recomputation keeps a normalisation's statistics") {
  const SmallResNet plain(Recompute::kNone), again(Recompute::kAll);
  CHECK(again.Count("Conv2D") > plain.Count("Conv2D"));
  CHECK(again.Count("BatchNorm") == plain.Count("BatchNorm"));
  CHECK(again.Count("BatchNormApply") > 0);
}

// Fused, the sums of a gate's gradient join other nodes where these are
// computed again.
TEST_CASE("recomputation without fusion has the same bits, with it nearly") {
  const auto train = [](Recompute recompute, bool fuse) {
    Graph graph;
    Scope root(graph);
    const Shape shape{32, 16};
    const Output in = graph.Placeholder("x", DType::kFloat32, shape);
    Output x = in;
    for (int i = 0; i < 6; ++i) {
      const Scope scope = root / ("gate" + std::to_string(i));
      x = Silu(layers::Dense(scope, x, {.units = shape[1]})) * x + in;
    }
    std::vector<Output> fetches = {Mean(Square(x - in * 0.5))};
    for (const Output& gradient :
         Gradients(fetches, graph.TrainableVariables(), {}, {recompute})) {
      fetches.push_back(gradient);
    }
    Session session(graph, {.deterministic = true, .fuse = fuse});
    session.Initialize();
    return session.Run({{in, testing::Ramp(shape)}}, fetches);
  };
  for (const bool fuse : {false, true}) {
    CAPTURE(fuse);
    const std::vector<Tensor> wanted = train(Recompute::kNone, fuse);
    for (const Recompute recompute : {Recompute::kAll, Recompute::kNorms}) {
      const std::vector<Tensor> got = train(recompute, fuse);
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        if (!fuse) CHECK(got[i].BitEqual(wanted[i]));
        double largest = 0, apart = 0;
        for (int64_t e = 0; e < got[i].elements(); ++e) {
          largest = std::max(largest, std::abs(wanted[i].At(e)));
          apart = std::max(apart, std::abs(got[i].At(e) - wanted[i].At(e)));
        }
        CHECK(apart <= 1e-5 * largest);
      }
    }
  }
}

TEST_CASE("gradients of gradients may be recomputed too") {
  auto second = [](Recompute recompute) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat64, {3});
    Output y = x;
    for (int i = 0; i < 9; ++i) y = Tanh(y * 1.1 + x);
    const GradientOptions options{.recompute = recompute};
    const Output dx = Gradients({Sum(y)}, {x}, {}, options)[0];
    const Output ddx = Gradients({Sum(dx)}, {x}, {}, options)[0];
    Tensor value(DType::kFloat64, {3});
    for (int i = 0; i < 3; ++i) value.data<double>()[i] = 0.3 * i - 0.2;
    return Session(graph).Run({{x, value}}, ddx);
  };
  // The terms of a sum come in another order.
  const Tensor a = second(Recompute::kAll), b = second(Recompute::kNone);
  for (int i = 0; i < 3; ++i) {
    CHECK(a.At(i) == doctest::Approx(b.At(i)).epsilon(1e-12));
  }
}

TEST_CASE("what is computed again may be as deep as the graph") {
  Graph graph;
  const auto channels = [&](double value) {
    return graph.Constant(Tensor::Full(DType::kFloat32, {4}, value));
  };
  const Output x = graph.Placeholder("x", DType::kFloat32, {8, 4});
  Output y = BatchNorm(x, channels(1), channels(0), channels(0), channels(1)).y;
  std::vector<const Node*> first;
  for (int i = 0; i < 40'000; ++i) {
    y = -y;
    first.push_back(&y.node());
  }
  (void)Gradients({Sum(y)}, {x}, {}, {Recompute::kNorms});
  size_t alike = 0;
  const Node* before = nullptr;  // the second computation of the node before
  for (const Node* node : first) {
    const Node* const twin = graph.Find("gradients/recompute/" + node->name());
    REQUIRE(twin != nullptr);
    alike += before == nullptr || &twin->input(0).node() == before ? 1 : 0;
    before = twin;
  }
  CHECK(alike == first.size());
}

// What Recompute::kAll is to make small: what is kept and the
// largest segment.
int64_t CostOf(const std::vector<int>& cuts, const std::vector<int64_t>& bytes,
               const std::vector<int64_t>& crossing) {
  int64_t kept = 0, largest = 0;
  int begin = 0;
  for (int cut : cuts) {
    kept += crossing[cut];
    largest = std::max(largest, std::accumulate(bytes.begin() + begin,
                                                bytes.begin() + cut, 0L));
    begin = cut;
  }
  return kept + std::max(largest, std::accumulate(bytes.begin() + begin,
                                                  bytes.end(), 0L));
}

TEST_CASE("a uniform chain is cut into about the square root of its length") {
  const std::vector<int64_t> bytes(100, 10), crossing(101, 10);
  const std::vector<int> cuts = ChooseCuts(bytes, crossing);
  // 9 cuts and segments of 10: 9 * 10 + 10 * 10.
  CHECK(CostOf(cuts, bytes, crossing) <= 220);
  CHECK(std::is_sorted(cuts.begin(), cuts.end()));
}

TEST_CASE("cuts are where little crosses") {
  // Blocks of four nodes; within one, three values are alive.
  std::vector<int64_t> bytes(64, 10), crossing(65, 30);
  for (size_t i = 0; i < crossing.size(); i += 4) crossing[i] = 10;
  const std::vector<int> cuts = ChooseCuts(bytes, crossing);
  for (int cut : cuts) CHECK(cut % 4 == 0);
  // 7 cuts and segments of two blocks: 7 * 10 + 8 * 10, and no others are less.
  CHECK(CostOf(cuts, bytes, crossing) == 150);
}

TEST_CASE("what cannot be cut with profit is left whole") {
  CHECK(ChooseCuts({}, {0}).empty());
  CHECK(ChooseCuts({8}, {0, 0}).empty());
  CHECK(ChooseCuts({8, 8}, {0, 100, 0}).empty());
}

}  // namespace
}  // namespace sluice
