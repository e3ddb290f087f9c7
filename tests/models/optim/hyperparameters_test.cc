// Which numbers optimizers take, and that they train by them as loops in double
// do.
#include "models/optim/hyperparameters.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/gradient_hooks.h"
#include "models/optim/optimizers.h"
#include "models/optim/schedule.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

using Use = void (*)(double x);
using Uses = std::map<std::string, Use>;  // by the error's begin

void CheckTakes(const Uses& uses, const std::vector<double>& good,
                const std::vector<double>& bad) {
  for (const auto& [text, use] : uses) {
    CAPTURE(text);
    for (const double x : good) CHECK_NOTHROW(use(x));
    for (const double x : bad) {
      CAPTURE(x);
      CHECK(Contains(ErrorOf([&] { use(x); }), text));
    }
  }
}

TEST_CASE("numbers that no rule can train by are refused") {
  // Of squares: a mean that is negative has no root.
  const Uses fractions = {
      {"rmsprop: wanted a decay in [0, 1)",
       [](double x) { (void)optimizers::RmsProp(1, {.decay = x}); }},
      {"adam: wanted a beta2 in [0, 1)",
       [](double x) { (void)optimizers::Adam(1, {.beta2 = x}); }},
      {"adamw: wanted a beta2 in [0, 1)",
       [](double x) { (void)optimizers::AdamW(1, {.beta2 = x}); }},
      {"lamb: wanted a beta2 in [0, 1)",
       [](double x) { (void)optimizers::Lamb(1, {.beta2 = x}); }}};
  const Uses betas = {
      {"adam: wanted a beta1 in (-1, 1)",
       [](double x) { (void)optimizers::Adam(1, {.beta1 = x}); }},
      {"adamw: wanted a beta1 in (-1, 1)",
       [](double x) { (void)optimizers::AdamW(1, {.beta1 = x}); }},
      {"lamb: wanted a beta1 in (-1, 1)",
       [](double x) { (void)optimizers::Lamb(1, {.beta1 = x}); }}};
  const Uses factors = {
      {"rmsprop: wanted a finite epsilon",
       [](double x) { (void)optimizers::RmsProp(1, {.epsilon = x}); }},
      {"adagrad: wanted a finite initial_accumulator",
       [](double x) {
         (void)optimizers::Adagrad(1, {.initial_accumulator = x});
       }},
      {"adagrad: wanted a finite epsilon",
       [](double x) { (void)optimizers::Adagrad(1, {.epsilon = x}); }},
      {"adam: wanted a finite epsilon",
       [](double x) { (void)optimizers::Adam(1, {.epsilon = x}); }},
      {"adamw: wanted a finite epsilon",
       [](double x) { (void)optimizers::AdamW(1, {.epsilon = x}); }},
      {"adamw: wanted a finite weight_decay",
       [](double x) { (void)optimizers::AdamW(1, {.weight_decay = x}); }},
      {"lars: wanted a finite weight_decay",
       [](double x) { (void)optimizers::Lars(1, {.weight_decay = x}); }},
      {"lars: wanted a finite trust",
       [](double x) { (void)optimizers::Lars(1, {.trust = x}); }},
      {"lars: wanted a finite epsilon",
       [](double x) { (void)optimizers::Lars(1, {.epsilon = x}); }},
      {"lamb: wanted a finite epsilon",
       [](double x) { (void)optimizers::Lamb(1, {.epsilon = x}); }},
      {"lamb: wanted a finite weight_decay",
       [](double x) { (void)optimizers::Lamb(1, {.weight_decay = x}); }},
      {"WeightDecay: wanted a finite rate",
       [](double x) { (void)gradients::WeightDecay(x); }}};
  const Uses finite = {
      {"momentum: wanted a finite momentum",
       [](double x) { (void)optimizers::Momentum(1, x); }},
      {"nesterov: wanted a finite momentum",
       [](double x) { (void)optimizers::Nesterov(1, x); }},
      {"rmsprop: wanted a finite momentum",
       [](double x) { (void)optimizers::RmsProp(1, {.momentum = x}); }},
      {"lars: wanted a finite momentum",
       [](double x) { (void)optimizers::Lars(1, {.momentum = x}); }},
      {"wanted a finite factor",
       [](double x) { (void)schedules::Scaled(0.1, x); }},
      {"WithRateFactor: wanted a finite factor",
       [](double x) { (void)optimizers::Sgd(1).WithRateFactor("*", x); }}};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  // What they become is float32.
  const double most = std::nextafter(1.0F, 0.0F);
  CheckTakes(fractions, {0, 0.5, most},
             {1, std::nextafter(1.0, 0.0), 1.5, -0.1, 1e300, kInfinity, kNan});
  CheckTakes(betas, {0, 0.5, most, -0.5, -most},
             {1, std::nextafter(1.0, 0.0), -1, std::nextafter(-1.0, 0.0), 1.5,
              -1e300, kInfinity, kNan});
  CheckTakes(factors, {0, 0.5, 2}, {-0.1, 1e39, kInfinity, kNan});
  CheckTakes(finite, {0, 0.5, 2, -0.5, -2},
             {1e39, -1e39, kInfinity, -kInfinity, kNan});
  // That of averages becomes the variable's dtype only after the first updates,
  // and stays a double until then.
  CheckTakes({{"WithAverages: wanted a decay in [0, 1)",
               [](double x) { (void)optimizers::Sgd(1).WithAverages(x); }}},
             {0, 0.5, 0.99999999, std::nextafter(1.0, 0.0)},
             {1, 1.5, -0.1, kInfinity, kNan});
}

constexpr double kRate = 0.125;
constexpr double kFirst = 0.75;

double GradientAt(int n) {
  return std::sin(1.7 * n) + 0.3;
}

// How the rule changes w, from what it keeps and the gradient of update n.
using Rule = std::function<void(double g, int n, double& w)>;

// A float64 variable after each update, against the loop.
void CheckTrains(const Optimizer& optimizer, const Rule& rule) {
  CAPTURE(optimizer.name());
  Graph graph;
  const Output w = graph.Variable("critic/w", CopyOf(Tensor::Scalar(kFirst)));
  const Output g = graph.Placeholder("g", DType::kFloat64, {});
  const Operation train = optimizer.Minimize(w * g);
  Session session(graph);
  session.Initialize();
  double wanted = kFirst;
  for (int n = 1; n <= 12; ++n) {
    CAPTURE(n);
    session.Run({{g, Tensor::Scalar(GradientAt(n))}}, train);
    rule(GradientAt(n), n, wanted);
    CHECK(session.Read(w).At(0) == doctest::Approx(wanted).epsilon(1e-12));
  }
}

TEST_CASE("a negative momentum holds back what the last step did") {
  double velocity = 0, square = 0;
  CheckTrains(optimizers::Momentum(kRate, -0.3), [&](double g, int, double& w) {
    velocity = -0.3 * velocity + g;
    w -= kRate * velocity;
  });
  velocity = 0;
  CheckTrains(optimizers::Nesterov(kRate, -0.3), [&](double g, int, double& w) {
    velocity = -0.3 * velocity + g;
    w -= kRate * (g - 0.3 * velocity);
  });
  velocity = 0;
  CheckTrains(optimizers::RmsProp(kRate, {.momentum = -0.3, .epsilon = 0.01}),
              [&](double g, int, double& w) {
                square = 0.9 * square + 0.1 * g * g;
                velocity = -0.3 * velocity + g / (std::sqrt(square) + 0.01);
                w -= kRate * velocity;
              });
  // Of one element the norms are its own.
  velocity = 0;
  CheckTrains(
      optimizers::Lars(
          kRate,
          {.momentum = -0.3, .weight_decay = 0, .trust = 0.5, .epsilon = 0.01}),
      [&](double g, int, double& w) {
        const double ratio = 0.5 * std::abs(w) / (std::abs(g) + 0.01);
        velocity = -0.3 * velocity + ratio * g;
        w -= kRate * velocity;
      });
}

TEST_CASE("Adam's first mean may alternate") {
  double m = 0, v = 0;
  // The direction without decay.
  const auto direction = [&](double g, int n) {
    m = -0.5 * m + 1.5 * g;
    v = 0.9 * v + 0.1 * g * g;
    return m / (1 - std::pow(-0.5, n)) /
           (std::sqrt(v / (1 - std::pow(0.9, n))) + 0.01);
  };
  CheckTrains(
      optimizers::Adam(kRate, {.beta1 = -0.5, .beta2 = 0.9, .epsilon = 0.01}),
      [&](double g, int n, double& w) { w -= kRate * direction(g, n); });
  m = v = 0;
  CheckTrains(
      optimizers::AdamW(
          kRate,
          {.weight_decay = 0.25, .beta1 = -0.5, .beta2 = 0.9, .epsilon = 0.01}),
      [&](double g, int n, double& w) {
        w -= kRate * (direction(g, n) + 0.25 * w);
      });
  m = v = 0;
  CheckTrains(
      optimizers::Lamb(
          kRate,
          {.weight_decay = 0, .beta1 = -0.5, .beta2 = 0.9, .epsilon = 0.01}),
      [&](double g, int n, double& w) {
        const double step = direction(g, n);
        w -= kRate * step * std::abs(w) / std::abs(step);
      });
}

TEST_CASE("negative factors of a rate climb the loss") {
  const Rule climbs = [](double g, int, double& w) { w += 0.5 * kRate * g; };
  CheckTrains(optimizers::Sgd(kRate).WithRateFactor("critic*", -0.5), climbs);
  CheckTrains(optimizers::Sgd(schedules::Scaled(kRate, -0.5)), climbs);
  double velocity = 0;
  CheckTrains(optimizers::Momentum(kRate, 0.5).WithRateFactor("critic*", -1),
              [&](double g, int, double& w) {
                velocity = 0.5 * velocity + g;
                w += kRate * velocity;
              });
}

TEST_CASE("averages over more updates than float32 tells from all") {
  Graph graph;
  const Output w = graph.Variable("w", CopyOf(Tensor::Scalar(0.0)));
  const double decay = 0.99999999;
  const Operation train = optimizers::Sgd(1.0).WithAverages(decay).Minimize(w);
  Session session(graph);
  session.Initialize();
  const Output average = graph.Get("w/average");
  double wanted = 0;
  const auto run = [&](double n) {
    session.Run({}, train);
    const double d = std::min(decay, (n - 1) / (n + 9));
    wanted = d * wanted + (1 - d) * session.Read(w).At(0);
    CHECK(session.Read(average).At(0) ==
          doctest::Approx(wanted).epsilon(1e-12));
    return d;
  };
  for (int n = 1; n <= 4; ++n) CHECK(run(n) < decay);
  // So many that the decay is the lesser.
  constexpr int64_t kMany = 4'000'000'000;
  session.Write(GlobalStep(graph), Tensor::Scalar<int64_t>(kMany));
  session.Write(w, Tensor::Scalar(1e6));
  for (int n = 1; n <= 4; ++n) {
    CHECK(run(static_cast<double>(kMany + n)) == decay);
  }
}

}  // namespace
}  // namespace sluice
