// LARS and LAMB against their formulas, step by step in float64.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/runtime/finite_check.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"

namespace sluice {
namespace {

using Numbers = std::vector<double>;

double Norm(const Numbers& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// One variable's state, and a step of each rule.
struct Line {
  Numbers w, a, b;  // the variable and its slots

  void Lars(const Numbers& g, double rate, bool adapts,
            const optimizers::LarsOptions& o) {
    const double of_w = Norm(w), of_g = Norm(g);
    double ratio = 1;
    if (adapts && of_w > 0 && of_g > 0) {
      ratio = o.trust * of_w / (of_g + o.weight_decay * of_w + o.epsilon);
    }
    for (size_t i = 0; i < w.size(); ++i) {
      const double grown =
          adapts ? ratio * (g[i] + o.weight_decay * w[i]) : g[i];
      a[i] = o.momentum * a[i] + grown;
      w[i] -= rate * (o.nesterov ? grown + o.momentum * a[i] : a[i]);
    }
  }

  void Lamb(const Numbers& g, double rate, int number, bool adapts,
            const optimizers::LambOptions& o) {
    Numbers step(w.size());
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = o.beta1 * a[i] + (1 - o.beta1) * g[i];
      b[i] = o.beta2 * b[i] + (1 - o.beta2) * g[i] * g[i];
      const double m = a[i] / (1 - std::pow(o.beta1, number));
      const double v = b[i] / (1 - std::pow(o.beta2, number));
      step[i] = m / (std::sqrt(v) + o.epsilon);
      if (adapts) step[i] += o.weight_decay * w[i];
    }
    const double of_w = Norm(w), of_step = Norm(step);
    const double ratio = adapts && of_w > 0 && of_step > 0 ? of_w / of_step : 1;
    for (size_t i = 0; i < w.size(); ++i) w[i] -= rate * ratio * step[i];
  }
};

// Ten steps of a matrix, a bias, zeros and what has no gradient, in `dtype`;
// the sum of all differences from the formulas. `hooked`: the decay is that of
// gradients::WeightDecay.
void CheckSteps(bool lars, DType dtype, bool nesterov, bool hooked,
                double tolerance) {
  const std::vector<std::string> names = {"fc/w", "fc/bias", "zeros", "still"};
  std::mt19937 random(lars ? 1 : 2);
  std::normal_distribution<double> normal;
  const auto draw = [&](size_t n) {
    Numbers values(n);
    for (double& value : values) value = normal(random);
    return values;
  };
  const auto tensor = [&](const Numbers& values) {
    Tensor t(dtype, {static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kFloat64) {
        t.data<double>()[i] = values[i];
      } else {
        t.data<float>()[i] = static_cast<float>(values[i]);
      }
    }
    return t;
  };
  const optimizers::LarsOptions of_lars = {
      .weight_decay = 0.01, .trust = 0.02, .nesterov = nesterov};
  const optimizers::LambOptions of_lamb = {.weight_decay = 0.1};
  constexpr double kRate = 0.5;
  Optimizer optimizer = lars ? optimizers::Lars(kRate, of_lars)
                             : optimizers::Lamb(kRate, of_lamb);
  if (hooked) {
    optimizers::LarsOptions lars_with_another = of_lars;
    optimizers::LambOptions lamb_with_another = of_lamb;
    lars_with_another.weight_decay = lamb_with_another.weight_decay = 0.5;
    optimizer = lars ? optimizers::Lars(kRate, lars_with_another)
                     : optimizers::Lamb(kRate, lamb_with_another);
    optimizer = optimizer.With(gradients::WeightDecay(
        lars ? of_lars.weight_decay : of_lamb.weight_decay));
  }
  Graph graph;
  std::vector<Output> variables, feeds, terms;
  std::vector<Line> lines;
  for (const std::string& name : names) {
    const size_t n = name == "fc/w" ? 40 : 7;
    Line line{name == "zeros" ? Numbers(n) : draw(n), Numbers(n), Numbers(n)};
    const Tensor first = tensor(line.w);
    variables.push_back(graph.Variable(name, CopyOf(first)));
    feeds.push_back(graph.Placeholder("g" + std::to_string(lines.size()), dtype,
                                      first.shape()));
    terms.push_back(Sum(variables.back() * feeds.back()));
    lines.push_back(line);
  }
  const Operation train = optimizer.Minimize(AddN(terms));
  Session session(graph);
  session.Initialize();
  for (int number = 1; number <= 10; ++number) {
    std::vector<Feed> fed;
    for (size_t v = 0; v < lines.size(); ++v) {
      Numbers g = draw(lines[v].w.size());
      if (names[v] == "still") g.assign(g.size(), 0);
      fed.push_back({feeds[v], tensor(g)});
      const bool adapts = names[v] != "fc/bias";
      if (lars) {
        lines[v].Lars(g, kRate, adapts, of_lars);
      } else {
        lines[v].Lamb(g, kRate, number, adapts, of_lamb);
      }
    }
    session.Run(fed, train);
    for (size_t v = 0; v < lines.size(); ++v) {
      CAPTURE(names[v]);
      CAPTURE(number);
      const Tensor now = session.Read(variables[v]);
      double apart = 0;
      for (size_t i = 0; i < lines[v].w.size(); ++i) {
        apart = std::max(
            apart, std::abs(now.At(static_cast<int64_t>(i)) - lines[v].w[i]));
      }
      CHECK(apart <= tolerance);
    }
  }
}

TEST_CASE("LARS is its formula") {
  for (const bool nesterov : {false, true}) {
    for (const bool hooked : {false, true}) {
      CheckSteps(true, DType::kFloat64, nesterov, hooked, 1e-9);
      CheckSteps(true, DType::kFloat32, nesterov, hooked, 2e-5);
    }
  }
}

TEST_CASE("LAMB is its formula") {
  for (const bool hooked : {false, true}) {
    CheckSteps(false, DType::kFloat64, false, hooked, 1e-9);
    CheckSteps(false, DType::kFloat32, false, hooked, 1e-4);
  }
}

// Nor does what is computed while gradients are collected, before the first
// update, hold what is no number: a look for that would blame it.
TEST_CASE("LARS and LAMB while gradients are collected") {
  for (const Optimizer& plain :
       {optimizers::Lars(0.5), optimizers::Lamb(0.5)}) {
    Graph graph;
    const Output w = graph.Variable("w", Ones({5}));
    const Output g = graph.Placeholder("g", DType::kFloat32, {5});
    const Operation train =
        plain.With(gradients::Accumulate(3)).Minimize(Sum(w * g));
    Session session(graph, {.fuse = false});
    session.Initialize();
    FiniteCheck check;
    session.SetObserver(&check);
    for (int run = 1; run <= 7; ++run) {
      CAPTURE(plain.name());
      CAPTURE(run);
      const Tensor before = session.Read(w);
      session.Run({{g, Tensor::Full(DType::kFloat32, {5}, run)}}, train);
      CHECK(session.Read(w).BitEqual(before) == (run % 3 != 0));
    }
    session.SetObserver(nullptr);
    CHECK(check.node().empty());
  }
}

TEST_CASE("nor where gradients are zero, and nothing decays") {
  for (const Optimizer& optimizer :
       {optimizers::Lars(0.5, {.weight_decay = 0, .epsilon = 0}),
        optimizers::Lamb(0.5, {.weight_decay = 0})}) {
    CAPTURE(optimizer.name());
    Graph graph;
    const Output w = graph.Variable("w", Ones({5}));
    const Output g = graph.Placeholder("g", DType::kFloat32, {5});
    const Operation train = optimizer.Minimize(Sum(w * g));
    Session session(graph, {.fuse = false});
    session.Initialize();
    FiniteCheck check;
    session.SetObserver(&check);
    session.Run({{g, Tensor::Full(DType::kFloat32, {5}, 0)}}, train);
    session.SetObserver(nullptr);
    CHECK(check.node() == "");
    CHECK(session.Read(w).BitEqual(Tensor::Full(DType::kFloat32, {5}, 1)));
  }
}

}  // namespace
}  // namespace sluice
