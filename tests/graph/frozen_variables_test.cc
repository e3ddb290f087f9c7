// Graph::Freeze before the variables are made and after it.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
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
using testing::Ramp;

bool OfBody(std::string_view name) {
  return name.starts_with("body/");
}

struct Network {
  Graph graph;
  Output x = graph.Constant(Ramp({4, 3}));
  Output body, head, loss;

  // Statistics in the body are updated if `training`.
  void Build(bool training = false) {
    const Scope scope(graph);
    body = layers::Dense(scope / "body" / "fc", x, {.units = 3});
    body =
        layers::BatchNorm(scope / "body" / "bn", body, {.training = training});
    head = layers::Dense(scope / "head", body, {.units = 2});
    loss = Mean(Square(head - 1));
  }
};

// The names of what three steps of training have changed.
std::vector<std::string> Trained(Network& network) {
  const Operation train =
      optimizers::Momentum(0.1f, 0.9f).Minimize(network.loss);
  Session session(network.graph);
  session.Initialize();
  std::vector<Output> model;
  std::vector<Tensor> before;
  for (const Output& variable : network.graph.Variables()) {
    if (!OfBody(variable.name()) && !variable.name().starts_with("head/")) {
      continue;
    }
    model.push_back(variable);
    before.push_back(session.Read(variable));
  }
  for (int i = 0; i < 3; ++i) session.Run({}, train);
  std::vector<std::string> changed;
  for (size_t i = 0; i < model.size(); ++i) {
    if (!session.Read(model[i]).BitEqual(before[i])) {
      changed.push_back(model[i].name());
    }
  }
  return changed;
}

TEST_CASE("variables can be frozen after the model is built") {
  std::vector<std::string> changed;
  for (const bool first : {true, false}) {
    CAPTURE(first);
    Network network;
    if (first) network.graph.Freeze(OfBody);
    network.Build();
    if (!first) {
      CHECK(network.graph.TrainableVariables().size() == 6);
      network.graph.Freeze(OfBody);
    }
    for (const Output& v : network.graph.TrainableVariables()) {
      CHECK_FALSE(OfBody(v.name()));
    }
    CHECK(network.graph.Frozen("body/new/weights"));
    const std::vector<std::string> now = Trained(network);
    CHECK(now.size() >= 2);
    if (first) changed = now;
    CHECK(now == changed);
  }
}

// What `graph.Freeze(frozen)` throws; its code must be kFailedPrecondition.
template <typename Frozen>
std::string Refusal(Graph& graph, Frozen frozen) {
  try {
    graph.Freeze(frozen);
  } catch (const Error& error) {
    CHECK(error.code() == Code::kFailedPrecondition);
    return error.what();
  }
  return "";
}

TEST_CASE("freezing what is trained already is refused") {
  Network network;
  network.Build();
  optimizers::Sgd(0.1f).Minimize(network.loss);
  const size_t trainable = network.graph.TrainableVariables().size();
  const std::string error = Refusal(network.graph, OfBody);
  CHECK(Contains(error, "'body/fc/weights'"));
  CHECK(Contains(error, "Freeze before"));
  CHECK(Contains(error, "(frozen_variables_test.cc:"));
  // Nothing is changed, and what comes is not frozen.
  CHECK(network.graph.TrainableVariables().size() == trainable);
  CHECK_FALSE(network.graph.Frozen("body/new/weights"));
  // What no training writes still can be.
  CHECK(Refusal(network.graph, [](std::string_view name) {
          return name == "nothing";
        }).empty());
  CHECK(Refusal(network.graph, nullptr).empty());
}

TEST_CASE("freezing statistics that a layer updates is refused") {
  Network network;
  network.Build(/*training=*/true);
  const std::string error = Refusal(network.graph, OfBody);
  CHECK(Contains(error, "'body/bn/running_mean'"));
  CHECK(network.graph.TrainableVariables().size() == 6);
  // Its weights alone can be.
  const auto weights = [](std::string_view name) {
    return OfBody(name) && !name.starts_with("body/bn/running_");
  };
  CHECK(Refusal(network.graph, weights).empty());
  CHECK(network.graph.TrainableVariables().size() == 2);
}

}  // namespace
}  // namespace sluice
