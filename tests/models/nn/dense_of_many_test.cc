// Dense over the last dimension of inputs of more than two.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Ramp;

constexpr int64_t kIn = 4, kUnits = 3;

initializers::Rule Rising() {
  return {[](const Shape& shape, DType dtype) {
    return CopyOf(Ramp(shape).Cast(dtype));
  }};
}

layers::DenseOptions Options(bool use_bias = true) {
  return {.units = kUnits,
          .activation = Tanh,
          .use_bias = use_bias,
          .weights = Rising(),
          .bias = Rising()};
}

TEST_CASE("dense acts on the last dimension") {
  struct Case {
    Shape declared, fed;
    Shape wanted;  // as far as it is known while the graph is built
  };
  for (const auto& [declared, fed, wanted] : std::vector<Case>{
           {{2, 5, 4}, {2, 5, 4}, {2, 5, 3}},
           {{kUnknown, 5, 4}, {2, 5, 4}, {kUnknown, 5, 3}},
           {{kUnknown, kUnknown, 4}, {2, 5, 4}, {kUnknown, kUnknown, 3}},
           {{kUnknown, 2, 3, 2, 4}, {2, 2, 3, 2, 4}, {kUnknown, 2, 3, 2, 3}},
           {{kUnknown, 0, 4}, {2, 0, 4}, {kUnknown, 0, 3}},
           {{kUnknown, kUnknown, 4}, {0, 7, 4}, {kUnknown, kUnknown, 3}}}) {
    for (const bool use_bias : {true, false}) {
      CAPTURE(declared.ToString());
      CAPTURE(use_bias);
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat64, declared);
      const Output y = layers::Dense(Scope(graph, "fc"), x, Options(use_bias));
      CHECK(y.shape() == wanted);
      CHECK(graph.Get("fc/weights").shape() == Shape{kIn, kUnits});
      Session session(graph);
      session.Initialize();
      const Tensor in = Ramp(fed).Cast(DType::kFloat64);
      const Tensor out = session.Run({{x, in}}, y);
      Shape shape = fed;
      shape.set(fed.rank() - 1, kUnits);
      REQUIRE(out.shape() == shape);
      const Tensor weights = session.Read(graph.Get("fc/weights"));
      const Tensor bias = use_bias ? session.Read(graph.Get("fc/bias"))
                                   : Tensor::Zeros(DType::kFloat64, {kUnits});
      for (int64_t row = 0; row < in.elements() / kIn; ++row) {
        for (int64_t unit = 0; unit < kUnits; ++unit) {
          double sum = bias.At(unit);
          for (int64_t k = 0; k < kIn; ++k) {
            sum += in.At(row * kIn + k) * weights.At(k * kUnits + unit);
          }
          CHECK(out.At(row * kUnits + unit) == doctest::Approx(std::tanh(sum)));
        }
      }
    }
  }
}

TEST_CASE("its gradients are those of finite differences") {
  Graph graph;
  const Output x =
      graph.Placeholder("x", DType::kFloat64, {kUnknown, kUnknown, kIn});
  const Output y = layers::Dense(Scope(graph, "fc"), x, Options());
  const Output loss = Sum(y * y * y);
  std::vector<Output> of = {x};
  for (const Output& v : graph.TrainableVariables()) of.push_back(v);
  REQUIRE(of.size() == 3);
  const std::vector<Output> gradients = Gradients({loss}, of);
  Session session(graph);
  session.Initialize();
  Tensor in = Ramp({2, 3, kIn}).Cast(DType::kFloat64);
  const std::vector<Tensor> got = session.Run({{x, in}}, gradients);
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < of.size(); ++i) {
    CAPTURE(of[i].name());
    Tensor value = i == 0 ? in.Clone() : session.Read(of[i]);
    REQUIRE(got[i].shape() == value.shape());
    const auto loss_at = [&](int64_t element, double at) {
      Tensor moved = value.Clone();
      moved.data<double>()[element] = at;
      if (i == 0) return session.Run({{x, moved}}, loss).At(0);
      session.Write(of[i], moved);
      return session.Run({{x, in}}, loss).At(0);
    };
    for (int64_t e = 0; e < value.elements(); ++e) {
      const double at = value.At(e);
      const double slope =
          (loss_at(e, at + kStep) - loss_at(e, at - kStep)) / (2 * kStep);
      CHECK(got[i].At(e) == doctest::Approx(slope).epsilon(1e-6));
    }
    if (i > 0) session.Write(of[i], value);
  }
}

TEST_CASE("of two dimensions it is one product, as ever") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, kIn});
  layers::Dense(Scope(graph, "fc"), x, Options());
  std::string ops;
  for (const auto& node : graph.nodes()) {
    if (node->name().find("/init") == std::string::npos) {
      ops += node->op().name + std::string(" ");
    }
  }
  CHECK(ops == "Placeholder Variable MatMul Variable BiasAdd Tanh ");
}

TEST_CASE("what dense cannot act on") {
  Graph graph;
  for (const Shape& shape : {Shape{4}, Shape{2, 3, kUnknown}}) {
    const Output x = graph.Placeholder("x", DType::kFloat32, shape);
    const std::string error =
        ErrorOf([&] { layers::Dense(Scope(graph, "fc"), x, Options()); });
    CHECK(Contains(error, "Dense 'fc': wanted [batch, ..., features]"));
    CHECK(Contains(error, "got " + shape.ToString()));
    CHECK(Contains(error, "dense_of_many_test.cc:"));
  }
}

}  // namespace
}  // namespace sluice
