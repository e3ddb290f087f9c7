// Layers: shapes, variables, values against sums done by hand, the two modes,
// and errors that name the caller's line.
#include "models/nn/layers.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/losses.h"
#include "models/nn/metrics.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Ramp;

struct Moments {
  double mean = 0, deviation = 0, least = 0, most = 0;
};
Moments MomentsOf(const Tensor& t) {
  Moments m{0, 0, t.At(0), t.At(0)};
  const auto n = static_cast<double>(t.elements());
  for (int64_t i = 0; i < t.elements(); ++i) {
    m.mean += t.At(i) / n;
    m.least = std::min(m.least, t.At(i));
    m.most = std::max(m.most, t.At(i));
  }
  for (int64_t i = 0; i < t.elements(); ++i) {
    m.deviation += (t.At(i) - m.mean) * (t.At(i) - m.mean) / n;
  }
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST_CASE("dense is x weights + bias, activated") {
  Graph graph;
  Scope scope(graph);
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
  const Output y = layers::Dense(scope / "fc1", x,
                                 {.units = 2,
                                  .activation = Relu,
                                  .weights = {[](const Shape& shape, DType) {
                                    return CopyOf(Ramp(shape));
                                  }},
                                  .bias = initializers::Constant(0.5)});
  CHECK(y.shape() == Shape{kUnknown, 2});
  CHECK(graph.Get("fc1/weights").shape() == Shape{3, 2});
  CHECK(graph.Get("fc1/bias").shape() == Shape{2});
  CHECK(graph.Find("fc1/mat_mul") != nullptr);

  Session session(graph);
  session.Initialize();
  const Tensor in = Ramp({4, 3});
  const Tensor weights = session.Read(graph.Get("fc1/weights"));
  const Tensor out = session.Run({{x, in}}, y);
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t unit = 0; unit < 2; ++unit) {
      double sum = 0.5;
      for (int64_t k = 0; k < 3; ++k) {
        sum += in.At(row * 3 + k) * weights.At(k * 2 + unit);
      }
      CHECK(out.At(row * 2 + unit) == doctest::Approx(std::max(sum, 0.0)));
    }
  }
}

TEST_CASE("convolution, pooling and flatten have the shapes they should") {
  Graph graph;
  Scope scope(graph);
  const Output image =
      graph.Placeholder("image", DType::kFloat32, {kUnknown, 28, 28, 1});
  Output x = layers::Conv2D(scope / "conv1", image,
                            {.filters = 32, .kernel = 5, .activation = Relu});
  CHECK(x.shape() == Shape{kUnknown, 28, 28, 32});
  CHECK(graph.Get("conv1/weights").shape() == Shape{5, 5, 1, 32});
  CHECK(graph.Get("conv1/bias").shape() == Shape{32});
  CHECK(layers::AvgPool(x, {.size = 3, .stride = 2}).shape() ==
        Shape{kUnknown, 13, 13, 32});
  CHECK(layers::GlobalAvgPool(x).shape() == Shape{kUnknown, 32});
  // A stride of 0 is the size, in each dimension by itself.
  CHECK(layers::MaxPool(x, {.size = 2, .stride = {0, 3}}).shape() ==
        Shape{kUnknown, 14, 9, 32});
  CHECK(layers::AvgPool(x, {.size = 2, .stride = {2, 0}}).shape() ==
        Shape{kUnknown, 14, 14, 32});
  x = layers::MaxPool(x, {.size = 2});
  CHECK(x.shape() == Shape{kUnknown, 14, 14, 32});
  x = layers::Conv2D(scope / "conv2", x,
                     {.filters = 8,
                      .kernel = {3, 1},
                      .stride = 2,
                      .padding = Padding::kValid,
                      .groups = 4,
                      .use_bias = false});
  CHECK(x.shape() == Shape{kUnknown, 6, 7, 8});
  CHECK(graph.Get("conv2/weights").shape() == Shape{3, 1, 8, 8});
  CHECK(graph.Find("conv2/bias") == nullptr);
  CHECK(layers::Flatten(x).shape() == Shape{kUnknown, 6 * 7 * 8});
}

TEST_CASE("batch norm normalises by the batch, then by what it has seen") {
  const Tensor in = Ramp({6, 4});
  Graph training;
  Scope scope(training);
  const Output x = training.Placeholder("x", DType::kFloat32, {kUnknown, 4});
  const Output y =
      layers::BatchNorm(scope / "bn", x, {.training = true, .momentum = 0.75});
  const Output loss = Mean(Square(y));
  const Operation train = optimizers::Sgd(0.0).Minimize(loss);
  CHECK(training.updates().size() == 2);
  Session session(training);
  session.Initialize();
  const Tensor normalized = session.Run({{x, in}}, y, {train});
  const Tensor mean = session.Read(training.Get("bn/running_mean"));
  const Tensor variance = session.Read(training.Get("bn/running_variance"));
  for (int64_t c = 0; c < 4; ++c) {
    double m = 0, v = 0;
    for (int64_t row = 0; row < 6; ++row) m += in.At(row * 4 + c) / 6;
    for (int64_t row = 0; row < 6; ++row) {
      v += (in.At(row * 4 + c) - m) * (in.At(row * 4 + c) - m);
    }
    CHECK(mean.At(c) == doctest::Approx(0.25 * m));
    CHECK(variance.At(c) == doctest::Approx(0.75 + 0.25 * v / 5));
    for (int64_t row = 0; row < 6; ++row) {
      CHECK(normalized.At(row * 4 + c) ==
            doctest::Approx((in.At(row * 4 + c) - m) / std::sqrt(v / 6 + 1e-5))
                .epsilon(1e-4));
    }
  }
  // Running the forward part alone leaves the statistics.
  session.Run({{x, in}}, y);
  CHECK(session.Read(training.Get("bn/running_mean")).BitEqual(mean));

  Graph inference;
  Scope root(inference);
  const Output ix = inference.Placeholder("x", DType::kFloat32, {kUnknown, 4});
  const Output iy = layers::BatchNorm(root / "bn", ix);
  CHECK(inference.updates().empty());
  Session other(inference);
  other.Initialize();
  other.Write(inference.Get("bn/running_mean"), mean);
  other.Write(inference.Get("bn/running_variance"), variance);
  const Tensor out = other.Run({{ix, in}}, iy);
  for (int64_t i = 0; i < in.elements(); ++i) {
    CHECK(out.At(i) == doctest::Approx((in.At(i) - mean.At(i % 4)) /
                                       std::sqrt(variance.At(i % 4) + 1e-5))
                           .epsilon(1e-4));
  }
}

TEST_CASE("a batch of no rows leaves the running statistics") {
  for (const bool synchronized : {false, true}) {
    CAPTURE(synchronized);
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
    const Output y =
        layers::BatchNorm(Scope(graph, "bn"), x,
                          {.training = true, .synchronized = synchronized});
    const Operation train = optimizers::Sgd(0.0).Minimize(Sum(y));
    Session session(graph);
    session.Initialize();
    const auto after = [&](int64_t rows) {
      session.Run({{x, Ramp({rows, 3})}}, train);
      return std::pair(session.Read(graph.Get("bn/running_mean")),
                       session.Read(graph.Get("bn/running_variance")));
    };
    const auto [mean, variance] = after(4);
    CHECK(mean.At(0) != 0);
    CHECK(variance.At(0) != 1);
    const auto [same_mean, same_variance] = after(0);
    CHECK(same_mean.BitEqual(mean));
    CHECK(same_variance.BitEqual(variance));
  }
}

TEST_CASE("layer norm makes every row's mean 0 and deviation 1") {
  Graph graph;
  Scope scope(graph);
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 7});
  const Output y = layers::LayerNorm(scope / "norm", x);
  Session session(graph);
  session.Initialize();
  const Tensor out = session.Run({{x, Ramp({3, 7})}}, y);
  for (int64_t row = 0; row < 3; ++row) {
    const Moments moments = MomentsOf(out.Rows(row, row + 1));
    CHECK(std::abs(moments.mean) < 1e-5);
    CHECK(moments.deviation == doctest::Approx(1).epsilon(1e-3));
  }
}

TEST_CASE("dropout drops in training only, otherwise at every step") {
  Graph graph;
  Scope scope(graph);
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 1000});
  CHECK(layers::Dropout(scope / "off", x, {.rate = 0.5}) == x);
  const Output y =
      layers::Dropout(scope / "drop", x, {.rate = 0.25, .training = true});
  Session session(graph);
  const Tensor ones = Tensor::Full(DType::kFloat32, {4, 1000}, 1);
  const Tensor first = session.Run({{x, ones}}, y);
  int64_t dropped = 0;
  for (int64_t i = 0; i < first.elements(); ++i) {
    const bool zero = first.At(i) == 0;
    dropped += zero ? 1 : 0;
    if (!zero) CHECK(first.At(i) == doctest::Approx(1 / 0.75));
  }
  CHECK(dropped > 900);
  CHECK(dropped < 1100);
  CHECK(session.Run({{x, ones}}, y).BitEqual(first));
  session.set_step(1);
  CHECK(!session.Run({{x, ones}}, y).BitEqual(first));
}

TEST_CASE("embedding looks rows up") {
  Graph graph;
  Scope scope(graph);
  const Output ids = graph.Placeholder("ids", DType::kInt64, {kUnknown, 2});
  const Output y =
      layers::Embedding(scope / "words", ids, {.size = 5, .dimensions = 3});
  CHECK(y.shape() == Shape{kUnknown, 2, 3});
  Session session(graph);
  session.Initialize();
  const Tensor table = session.Read(graph.Get("words/table"));
  const Tensor out =
      session.Run({{ids, Tensor::Array<int64_t>({1, 2}, {4, 1})}}, y);
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(out.At(i) == table.At(4 * 3 + i));
    CHECK(out.At(3 + i) == table.At(1 * 3 + i));
  }
}

TEST_CASE("errors name the layer, the shape and the caller's line") {
  Graph graph;
  Scope scope(graph);
  const Output image =
      graph.Placeholder("image", DType::kFloat32, {kUnknown, 28, 28, 1});
  const Output rows =
      graph.Placeholder("rows", DType::kFloat32, {kUnknown, kUnknown});
  const int line = __LINE__ + 2;
  const std::string error =
      ErrorOf([&] { layers::Dense(scope / "fc1", rows, {.units = 10}); });
  CHECK(Contains(error, "Dense 'fc1'"));
  CHECK(Contains(error, "[?,?]"));
  CHECK(Contains(error, fmt::format("layers_test.cc:{}", line)));

  // A mistake that only the op inside notices names the same line.
  const int pool_line = __LINE__ + 2;
  const std::string pool_error =
      ErrorOf([&] { layers::MaxPool(layers::Flatten(image), {.size = 2}); });
  CHECK(Contains(pool_error, fmt::format("layers_test.cc:{}", pool_line)));

  CHECK(Contains(ErrorOf([&] { layers::Conv2D(scope / "c", image, {}); }),
                 "filters must be positive, got 0"));
  CHECK(Contains(ErrorOf([&] {
                   layers::Conv2D(scope / "c", image,
                                  {.filters = 4, .groups = 2});
                 }),
                 "do not divide into 2 groups"));
  CHECK(Contains(
      ErrorOf([&] { layers::Dropout(scope / "d", image, {.rate = 1}); }),
      "[0, 1)"));
  layers::Conv2D(scope / "twice", image, {.filters = 1});
  CHECK(Contains(
      ErrorOf([&] { layers::Conv2D(scope / "twice", image, {.filters = 1}); }),
      "there is a node 'twice/weights' already"));
  Graph other;
  CHECK(Contains(ErrorOf([&] {
                   layers::Conv2D(Scope(other) / "c", image, {.filters = 1});
                 }),
                 "different graphs"));
}

TEST_CASE("initialisers have the deviations they promise") {
  Graph graph;
  const Shape shape = {3, 3, 64, 96};
  const double fan_in = 9 * 64, fan_out = 9 * 96;
  struct Case {
    const char* name;
    initializers::Rule rule;
    double deviation, most;
  };
  const double glorot = std::sqrt(2 / (fan_in + fan_out));
  const Case cases[] = {
      {"glorot_uniform", initializers::GlorotUniform(), glorot,
       glorot * std::sqrt(3)},
      {"glorot_normal", initializers::GlorotNormal(), glorot,
       2 * glorot / 0.8796},
      {"he_normal", initializers::HeNormal(), std::sqrt(2 / fan_in),
       2 * std::sqrt(2 / fan_in) / 0.8796},
      {"he_uniform", initializers::HeUniform(), std::sqrt(2 / fan_in),
       std::sqrt(6 / fan_in)},
      {"lecun_normal", initializers::LecunNormal(), std::sqrt(1 / fan_in),
       2 * std::sqrt(1 / fan_in) / 0.8796},
      {"truncated", initializers::TruncatedNormal(0.1), 0.08796, 0.2},
      {"normal", initializers::Normal(0.1), 0.1, 1},
      {"uniform", initializers::Uniform(-1, 1), 1 / std::sqrt(3), 1},
  };
  std::vector<Output> variables;
  for (const Case& c : cases) {
    variables.push_back(graph.Variable(c.name, c.rule(shape)));
  }
  Session session(graph);
  session.Initialize();
  for (size_t i = 0; i < variables.size(); ++i) {
    CAPTURE(cases[i].name);
    const Moments moments = MomentsOf(session.Read(variables[i]));
    CHECK(std::abs(moments.mean) < 0.02 * cases[i].deviation);
    CHECK(moments.deviation ==
          doctest::Approx(cases[i].deviation).epsilon(0.01));
    CHECK(moments.most <= cases[i].most * 1.0001);
    CHECK(moments.least >= -cases[i].most * 1.0001);
  }
}

TEST_CASE("losses and metrics against sums by hand") {
  Graph graph;
  const Output logits = graph.Constant(
      Tensor::Array<float>({3, 3}, {1, 2, 3, 0, 0, 0, 5, 1, -2}));
  const Output labels = graph.Constant(Tensor::Array<int64_t>({3}, {2, 1, 1}));
  const Output labels32 =
      graph.Constant(Tensor::Array<int32_t>({3}, {2, 1, 1}));
  Session session(graph);
  const auto values = session.Run(
      {},
      std::vector<Output>{Accuracy(logits, labels), Accuracy(logits, labels32),
                          TopKAccuracy(logits, labels, 2),
                          losses::SparseSoftmaxCrossEntropy(logits, labels),
                          losses::Huber(logits, 0.5, 1)});
  const float accuracy[] = {1, 0, 0};
  for (int i = 0; i < 3; ++i) {
    CHECK(values[0].At(i) == accuracy[i]);
    CHECK(values[1].At(i) == accuracy[i]);
  }
  CHECK(values[2].At(0) == 1);
  CHECK(values[2].At(2) == 1);
  double cross_entropy = 0;
  const int label[] = {2, 1, 1};
  const double x[3][3] = {{1, 2, 3}, {0, 0, 0}, {5, 1, -2}};
  double huber = 0;
  for (int i = 0; i < 3; ++i) {
    double sum = 0;
    for (double v : x[i]) {
      sum += std::exp(v);
      const double d = std::abs(v - 0.5);
      huber += (d <= 1 ? d * d / 2 : d - 0.5) / 9;
    }
    cross_entropy += (std::log(sum) - x[i][label[i]]) / 3;
  }
  CHECK(values[3].At(0) == doctest::Approx(cross_entropy));
  CHECK(values[4].At(0) == doctest::Approx(huber));
  // Below delta half the square, be it as large as it may.
  CHECK(session.Run({}, losses::Huber(logits, 0.5, INFINITY)).At(0) ==
        doctest::Approx((0.25 + 2.25 + 6.25 + 3 * 0.25 + 20.25 + 0.25 + 6.25) /
                        18));
  for (const double delta : {0.0, -1.0, -0.0, std::nan("")}) {
    const int line = __LINE__ + 2;
    const std::string error =
        ErrorOf([&] { losses::Huber(logits, 0.5, delta); });
    CHECK(Contains(error, "Huber: wanted a delta above 0, got"));
    CHECK(Contains(error, fmt::format("layers_test.cc:{}", line)));
  }
}

}  // namespace
}  // namespace sluice
