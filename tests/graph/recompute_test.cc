// Recomputation of activations: the same results with less memory.
#include "graph/recompute.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

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

// A chain of everything that is computed again, with additions over some of it.
// Derivatives of its loss by each of its nodes, and of these by the node and,
// behind those, by the chain's begin.
struct InnerSecond {
  Graph graph;
  Output x;
  std::vector<Output> inner, slopes, second;  // slopes: weighted sums of first

  InnerSecond(uint32_t seed, Recompute recompute, Recompute of_second) {
    std::mt19937 random(seed);
    const Shape shape{5, 3};
    const auto channels = [&](double value) {
      return graph.Constant(Tensor::Full(DType::kFloat64, {3}, value));
    };
    x = graph.Placeholder("x", DType::kFloat64, shape);
    Output y = x;
    for (int i = 0; i < 14; ++i) {
      switch (random() % 5) {
        case 0:
          y = Tanh(y * y + 0.5);
          break;
        case 1:
          y = Sigmoid(y * 1.5 - 0.2);
          break;
        case 2:
          y = BatchNorm(y, channels(0.7), channels(0.1), channels(0),
                        channels(1))
                  .y;
          break;
        case 3:
          y = y + (i == 0 ? x : inner[random() % inner.size()]) * 0.5;
          break;
        default:
          y = Tanh(y * 0.8);
      }
      inner.push_back(y);
    }
    const Output loss = Sum(Square(y - 0.3));
    std::vector<Output> by_x;
    const Output weights =
        Cast(graph.Constant(testing::Ramp(shape)), DType::kFloat64);
    for (const Output& a : inner) {
      const Output g = Gradients({loss}, {a}, {}, {.recompute = recompute})[0];
      slopes.push_back(Sum(g * weights));
      const std::vector<Output> by =
          Gradients({slopes.back()}, {a, x}, {}, {.recompute = of_second});
      second.push_back(by[0].valid() ? by[0] : ZerosLike(a));
      by_x.push_back(by[1].valid() ? by[1] : ZerosLike(x));
    }
    second.insert(second.end(), by_x.begin(), by_x.end());
  }

  bool ComputesAgain() const {
    return std::any_of(
        graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
          return node->name().find("recompute/") != std::string::npos;
        });
  }
};

TEST_CASE("second derivatives by nodes that are computed again") {
  int again = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Tensor value(DType::kFloat64, {5, 3});
    for (double& v : value.values<double>()) {
      v = std::uniform_real_distribution<double>(-1, 1)(random);
    }
    InnerSecond plain(seed, Recompute::kNone, Recompute::kNone);
    Session of_plain(plain.graph);
    const std::vector<Tensor> wanted =
        of_plain.Run({{plain.x, value}}, plain.second);
    const std::vector<Tensor> inner =
        of_plain.Run({{plain.x, value}}, plain.inner);
    for (size_t n = 0; n < inner.size(); ++n) {
      CAPTURE(n);
      for (const int64_t at : {int64_t{0}, int64_t{7}, int64_t{14}}) {
        const auto slope = [&](double step) {
          Tensor moved = inner[n].Clone();
          moved.data<double>()[at] += step;
          return of_plain
              .Run({{plain.x, value}, {plain.inner[n], moved}}, plain.slopes[n])
              .At(0);
        };
        constexpr double kStep = 1e-5;
        CHECK(wanted[n].At(at) ==
              doctest::Approx((slope(kStep) - slope(-kStep)) / (2 * kStep))
                  .epsilon(1e-5)
                  .scale(1));
      }
    }
    for (const Recompute first : {Recompute::kAll, Recompute::kNorms}) {
      for (const Recompute then : {Recompute::kNone, first}) {
        InnerSecond other(seed, first, then);
        again += other.ComputesAgain() ? 1 : 0;
        const std::vector<Tensor> got =
            Session(other.graph).Run({{other.x, value}}, other.second);
        for (size_t n = 0; n < got.size(); ++n) {
          CAPTURE(n);
          for (int64_t i = 0; i < got[n].elements(); ++i) {
            CHECK(got[n].At(i) ==
                  doctest::Approx(wanted[n].At(i)).epsilon(1e-9).scale(1));
          }
        }
      }
    }
  }
  CHECK(again > 20);
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
