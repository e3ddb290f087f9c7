// Layers that are called several times with the same variables
// (ReuseVariables).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Ramp;

Tensor Doubles(const Shape& shape, double add) {
  Tensor values = Ramp(shape).Cast(DType::kFloat64);
  for (int64_t i = 0; i < values.elements(); ++i) {
    values.data<double>()[i] += add;
  }
  return values;
}

// Two inputs of different batches through one network.
struct Siamese {
  Graph graph;
  Output a = graph.Placeholder("a", DType::kFloat64, {kUnknown, 4});
  Output b = graph.Placeholder("b", DType::kFloat64, {kUnknown, 4});
  Output loss;

  Output Tower(const Output& x) {
    const Scope tower = Scope(graph) / "tower";
    const Output h =
        layers::Dense(tower / "fc1", x, {.units = 3, .activation = Tanh});
    return layers::LayerNorm(tower / "norm",
                             layers::Dense(tower / "fc2", h, {.units = 2}));
  }
  Siamese() {
    const Output left = Tower(a);
    const ReuseVariables again(Scope(graph) / "tower");
    loss = Sum(Square(left - 2 * Tower(b)));
  }
  std::vector<Feed> Feeds() const {
    return {{a, Doubles({5, 4}, 0)}, {b, Doubles({5, 4}, 0.3)}};
  }
};

TEST_CASE("a siamese network has the gradient of the sum") {
  Siamese model;
  Graph& graph = model.graph;
  const std::vector<Output> variables = graph.TrainableVariables();
  std::vector<std::string> names;
  for (const Output& v : variables) names.push_back(v.name());
  CHECK(names == std::vector<std::string>{"tower/fc1/weights", "tower/fc1/bias",
                                          "tower/fc2/weights", "tower/fc2/bias",
                                          "tower/norm/scale",
                                          "tower/norm/offset"});
  CHECK(graph.Initializers().size() == 6);
  const std::vector<Output> gradients = Gradients({model.loss}, variables);
  Session session(graph);
  session.Initialize();
  const std::vector<Tensor> got = session.Run(model.Feeds(), gradients);
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < variables.size(); ++i) {
    CAPTURE(names[i]);
    const Tensor value = session.Read(variables[i]);
    for (int64_t e = 0; e < value.elements(); ++e) {
      const auto loss_at = [&](double at) {
        Tensor moved = value.Clone();
        moved.data<double>()[e] = at;
        session.Write(variables[i], moved);
        return session.Run(model.Feeds(), model.loss).At(0);
      };
      const double at = value.At(e);
      const double slope = (loss_at(at + kStep) - loss_at(at - kStep)) / 2e-6;
      CHECK(got[i].At(e) == doctest::Approx(slope).epsilon(1e-5));
    }
    session.Write(variables[i], value);
  }
}

TEST_CASE("both calls read what is written once") {
  Siamese model;
  Session session(model.graph);
  session.Initialize();
  // The same network by the ops themselves.
  const auto read = [&](const std::string& name) {
    return session.Read(model.graph.Get("tower/" + name));
  };
  Graph raw;
  const Output a = raw.Placeholder("a", DType::kFloat64, {5, 4});
  const Output b = raw.Placeholder("b", DType::kFloat64, {5, 4});
  const auto tower = [&](const Output& x) {
    const auto constant = [&](const char* name) {
      return raw.Constant(read(name));
    };
    const Output h =
        Tanh(MatMul(x, constant("fc1/weights")) + constant("fc1/bias"));
    return LayerNorm(MatMul(h, constant("fc2/weights")) + constant("fc2/bias"),
                     constant("norm/scale"), constant("norm/offset"), 1e-5);
  };
  const Output loss = Sum(Square(tower(a) - 2 * tower(b)));
  Session wanted(raw);
  CHECK(
      session.Run(model.Feeds(), model.loss).At(0) ==
      doctest::Approx(
          wanted.Run({{a, Doubles({5, 4}, 0)}, {b, Doubles({5, 4}, 0.3)}}, loss)
              .At(0)));
}

TEST_CASE("only what agrees is shared, within the scope and while it lasts") {
  Graph graph;
  const Scope scope(graph);
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 4});
  const auto dense = [&](const char* name, int64_t units) {
    return layers::Dense(scope / "tower" / name, x, {.units = units});
  };
  const auto variable = [&](const char* name, DType dtype,
                            const VariableOptions& options) {
    NameScope tower(scope / "tower");
    return graph.Variable(name, Zeros({2}, dtype), options);
  };
  dense("fc", 2);
  const Output count = variable("count", DType::kFloat32, {.trainable = false});
  const Output part = variable("part", DType::kFloat32, {.part_of = 3});
  layers::Dense(scope / "tower2", x, {.units = 2});
  CHECK(Contains(ErrorOf([&] { dense("fc", 2); }),
                 "'tower/fc/weights' already; give the variable another name "
                 "or scope, or share it (ReuseVariables) (shared_layers_"));
  {
    const ReuseVariables again(scope / "tower");
    const size_t variables = graph.Variables().size();
    dense("fc", 2);
    CHECK(graph.Variables().size() == variables);
    CHECK(graph.Find("tower/fc/mat_mul_1") != nullptr);
    CHECK(variable("count", DType::kFloat32, {.trainable = false}) == count);
    CHECK(variable("part", DType::kFloat32, {.part_of = 3}) == part);
    const auto refused = [&](const char* difference, const auto& make) {
      const std::string error = ErrorOf(make);
      CHECK(Contains(error, difference));
      CHECK(Contains(error, "(shared_layers_test.cc:"));
    };
    refused(
        "'tower/fc/weights' already, float32[4,2], trainable, not "
        "float32[4,3], trainable;",
        [&] { dense("fc", 3); });
    refused("float32[2], not trainable, not float64[2], not trainable;",
            [&] { variable("count", DType::kFloat64, {.trainable = false}); });
    refused("float32[2], not trainable, not float32[2], trainable;",
            [&] { variable("count", DType::kFloat32, {}); });
    refused("float32[2] of 3, trainable, not float32[2] of 4, trainable;",
            [&] { variable("part", DType::kFloat32, {.part_of = 4}); });
    refused("'tower/fc/mat_mul' already, no variable, not float32[2]",
            [&] { variable("fc/mat_mul", DType::kFloat32, {}); });
    // Other scopes, and what is not there yet.
    CHECK(Contains(
        ErrorOf([&] { layers::Dense(scope / "tower2", x, {.units = 2}); }),
        "'tower2/weights' already"));
    dense("new", 2);
    CHECK(graph.Variables().size() == variables + 2);
    {
      const ReuseVariables inner(scope / "tower2");
      layers::Dense(scope / "tower2", x, {.units = 2});
      dense("new", 2);
    }
    CHECK_FALSE(ErrorOf([&] {
                  layers::Dense(scope / "tower2", x, {.units = 2});
                }) == "(no error)");
    CHECK(graph.Variables().size() == variables + 2);
  }
  CHECK(Contains(ErrorOf([&] { dense("fc", 2); }), "'tower/fc/weights'"));
  const ReuseVariables all(scope);
  layers::Dense(scope / "tower2", x, {.units = 2});
}

TEST_CASE("dropout draws anew in each call") {
  Graph graph;
  const Scope scope(graph);
  const Output x = graph.Constant(Tensor::Full(DType::kFloat32, {64}, 1));
  const ReuseVariables again(scope);
  std::vector<Output> outs;
  for (int i = 0; i < 2; ++i) {
    outs.push_back(layers::Dropout(scope / "drop", x, {.training = true}));
  }
  Session session(graph);
  const std::vector<Tensor> got = session.Run({}, outs);
  CHECK_FALSE(got[0].BitEqual(got[1]));
}

struct Moments {
  double mean = 0, variance = 0;  // unbiased
};
Moments MomentsOfColumn(const Tensor& x, int64_t column) {
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  Moments m;
  for (int64_t r = 0; r < rows; ++r) m.mean += x.At(r * columns + column);
  m.mean /= static_cast<double>(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const double d = x.At(r * columns + column) - m.mean;
    m.variance += d * d / static_cast<double>(rows - 1);
  }
  return m;
}

TEST_CASE("statistics move by one call's batch after the other") {
  constexpr int kCalls = 3;
  constexpr double kMomentum = 0.75;
  for (const bool synchronized : {false, true}) {
    for (const bool fuse : {false, true}) {
      CAPTURE(synchronized);
      CAPTURE(fuse);
      Graph graph;
      const Scope scope(graph);
      const ReuseVariables again(scope / "bn");
      std::vector<Output> xs, ys;
      Output loss;
      for (int i = 0; i < kCalls; ++i) {
        xs.push_back(graph.Placeholder("x", DType::kFloat64, {kUnknown, 2}));
        ys.push_back(layers::BatchNorm(scope / "bn", xs.back(),
                                       {.training = true,
                                        .momentum = kMomentum,
                                        .activation = Relu,
                                        .synchronized = synchronized}));
        const Output term = Sum(Square(ys.back() - 1));
        loss = i == 0 ? term : loss + term;
      }
      CHECK(graph.updates().size() == 2 * kCalls);
      const Operation train = optimizers::Sgd(0.0).Minimize(loss);
      Session session(graph, {.fuse = fuse});
      session.Initialize();
      std::vector<Feed> feeds;
      for (int i = 0; i < kCalls; ++i) {
        feeds.push_back({xs[static_cast<size_t>(i)],
                         Doubles({4 + i, 2}, static_cast<double>(i * i))});
      }
      const auto read = [&](const char* name) {
        return session.Read(graph.Get(std::string("bn/running_") + name));
      };
      // The outputs alone, also of the last call, write nothing.
      session.Run(feeds, ys);
      CHECK(read("mean").At(0) == 0);
      CHECK(read("variance").At(0) == 1);
      double mean[2] = {0, 0}, variance[2] = {1, 1};
      for (int step = 0; step < 2; ++step) {
        const std::vector<Tensor> got = session.Run(feeds, ys, {train});
        for (int64_t c = 0; c < 2; ++c) {
          for (size_t i = 0; i < kCalls; ++i) {
            const Tensor& x = feeds[i].value;
            const Moments of = MomentsOfColumn(x, c);
            mean[c] = kMomentum * mean[c] + (1 - kMomentum) * of.mean;
            variance[c] =
                kMomentum * variance[c] + (1 - kMomentum) * of.variance;
            const auto rows = static_cast<double>(x.shape()[0]);
            const double biased = of.variance * (rows - 1) / rows;
            CHECK(got[i].At(c) ==
                  doctest::Approx(std::max(
                      0.0, (x.At(c) - of.mean) / std::sqrt(biased + 1e-5))));
          }
          CHECK(read("mean").At(c) == doctest::Approx(mean[c]));
          CHECK(read("variance").At(c) == doctest::Approx(variance[c]));
        }
      }
    }
  }
}

TEST_CASE("with loss scaling none of them moves where gradients overflow") {
  Graph graph;
  const Scope scope(graph);
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 2});
  const Output wide = graph.Placeholder("wide", DType::kFloat32, {});
  const ReuseVariables again(scope / "bn");
  Output loss;
  for (int i = 0; i < 2; ++i) {
    const Output y = layers::BatchNorm(scope / "bn", x + i, {.training = true});
    loss = i == 0 ? Sum(y * wide) : loss + Sum(y);
  }
  const Operation train =
      optimizers::Sgd(0.0).WithLossScaling({.initial = 1}).Minimize(loss);
  Session session(graph);
  session.Initialize();
  const Output mean = graph.Get("bn/running_mean");
  const auto run = [&](float factor) {
    session.Run({{x, Ramp({3, 2})}, {wide, Tensor::Scalar(factor)}}, train);
    return session.Read(mean).At(1);
  };
  CHECK(run(INFINITY) == 0);
  const Moments m = MomentsOfColumn(Ramp({3, 2}), 1);
  CHECK(run(1) ==
        doctest::Approx(0.9 * 0.1 * m.mean + 0.1 * (m.mean + 1)).epsilon(1e-5));
}

}  // namespace
}  // namespace sluice
