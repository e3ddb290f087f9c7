// Optimizers, and what may come between gradients and updates, of random kinds:
// ours, and beside each what is written of it, by hand and in double.
#ifndef SLUICE_TESTS_SUPPORT_OPTIMIZERS_BY_HAND_H_
#define SLUICE_TESTS_SUPPORT_OPTIMIZERS_BY_HAND_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "models/optim/optimizers.h"

namespace sluice::testing {

using Numbers = std::vector<double>;

// One variable with what is kept of it.
struct Parameter {
  Numbers value, a, b, average, collected;
  double rate = 1;       // times the learning rate
  bool lazy = false;     // only rows that were read are updated
  bool decays = true;    // not a bias
  double decay = 0.125;  // of those that do, where the rule has one
};
using Parameters = std::map<std::string, Parameter>;
using ByName = std::map<std::string, Numbers>;

// What an optimizer does to a variable by a gradient; `at` are the elements
// that it may touch.
using Rule = std::function<void(Parameter& p, const Numbers& g, double rate,
                                double number, const std::vector<size_t>& at)>;
// To all gradients; `update` false: this run leaves the variables alone.
struct Hooked {
  bool finite = true, update = true;
  double number = 0;
};
using Hook = std::function<void(Parameters& all, ByName& g, Hooked& run)>;

inline double Norm(const Numbers& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

struct Kind {
  Optimizer optimizer;
  Rule rule;
  bool rows = true;  // WithSparseRows
};

inline Rule ByElement(
    const std::function<void(double& p, double g, double& a, double& b,
                             double rate, double number, double decay)>& fn) {
  return [fn](Parameter& p, const Numbers& g, double rate, double number,
              const std::vector<size_t>& at) {
    for (const size_t i : at) {
      fn(p.value[i], g[i], p.a[i], p.b[i], rate, number,
         p.decays ? p.decay : 0);
    }
  };
}

inline void AdamStep(double g, double& a, double& b, double number,
                     double epsilon, double* step) {
  a = 0.75 * a + 0.25 * g;
  b = 0.875 * b + 0.125 * g * g;
  *step = a / (1 - std::pow(0.75, number)) /
          (std::sqrt(b / (1 - std::pow(0.875, number))) + epsilon);
}

inline Kind RandomKind(const LearningRate& schedule, std::mt19937& random) {
  switch (random() % 9) {
    case 0:
      return {optimizers::Sgd(schedule),
              ByElement([](double& p, double g, double&, double&, double rate,
                           double, double) { p -= rate * g; })};
    case 1:
    case 2: {
      const bool nesterov = random() % 2 == 0;
      return {nesterov ? optimizers::Nesterov(schedule, 0.75)
                       : optimizers::Momentum(schedule, 0.75),
              ByElement([=](double& p, double g, double& a, double&,
                            double rate, double, double) {
                a = 0.75 * a + g;
                p -= rate * (nesterov ? g + 0.75 * a : a);
              })};
    }
    case 3: {
      const double momentum = random() % 2 == 0 ? 0 : 0.5;
      return {
          optimizers::RmsProp(
              schedule, {.decay = 0.75, .momentum = momentum, .epsilon = 0.1}),
          ByElement([=](double& p, double g, double& a, double& b, double rate,
                        double, double) {
            a = 0.75 * a + 0.25 * g * g;
            b = momentum * b + g / (std::sqrt(a) + 0.1);
            p -= rate * b;
          })};
    }
    case 4:
      return {optimizers::Adagrad(
                  schedule, {.initial_accumulator = 0.25, .epsilon = 0.1}),
              ByElement([](double& p, double g, double& a, double&, double rate,
                           double, double) {
                a += g * g;
                p -= rate * g / (std::sqrt(a) + 0.1);
              })};
    case 5:
      return {optimizers::Adam(schedule,
                               {.beta1 = 0.75, .beta2 = 0.875, .epsilon = 0.1}),
              ByElement([](double& p, double g, double& a, double& b,
                           double rate, double number, double) {
                double step = 0;
                AdamStep(g, a, b, number, 0.1, &step);
                p -= rate * step;
              })};
    case 6:
      return {optimizers::AdamW(schedule, {.weight_decay = 0.125,
                                           .beta1 = 0.75,
                                           .beta2 = 0.875,
                                           .epsilon = 0.1}),
              ByElement([](double& p, double g, double& a, double& b,
                           double rate, double number, double decay) {
                p -= rate * decay * p;
                double step = 0;
                AdamStep(g, a, b, number, 0.1, &step);
                p -= rate * step;
              })};
    case 7: {
      const bool nesterov = random() % 2 == 0;
      const Rule rule = [=](Parameter& p, const Numbers& given, double rate,
                            double, const std::vector<size_t>&) {
        Numbers g = given;
        if (p.decays) {
          const double w = Norm(p.value), of_g = Norm(g);
          const double ratio =
              w > 0 && of_g > 0 ? 0.5 * w / (of_g + p.decay * w + 1e-8) : 1;
          for (size_t i = 0; i < g.size(); ++i) {
            g[i] = ratio * (g[i] + p.decay * p.value[i]);
          }
        }
        for (size_t i = 0; i < g.size(); ++i) {
          p.a[i] = 0.75 * p.a[i] + g[i];
          p.value[i] -= rate * (nesterov ? g[i] + 0.75 * p.a[i] : p.a[i]);
        }
      };
      return {optimizers::Lars(schedule, {.momentum = 0.75,
                                          .weight_decay = 0.125,
                                          .trust = 0.5,
                                          .nesterov = nesterov}),
              rule, false};
    }
    default: {
      const Rule rule = [](Parameter& p, const Numbers& g, double rate,
                           double number, const std::vector<size_t>&) {
        Numbers step(g.size());
        for (size_t i = 0; i < g.size(); ++i) {
          AdamStep(g[i], p.a[i], p.b[i], number, 0.1, &step[i]);
          if (p.decays) step[i] += p.decay * p.value[i];
        }
        const double w = Norm(p.value), s = Norm(step);
        const double ratio = p.decays && w > 0 && s > 0 ? w / s : 1;
        for (size_t i = 0; i < g.size(); ++i) {
          p.value[i] -= rate * ratio * step[i];
        }
      };
      return {optimizers::Lamb(schedule, {.weight_decay = 0.125,
                                          .beta1 = 0.75,
                                          .beta2 = 0.875,
                                          .epsilon = 0.1}),
              rule, false};
    }
  }
}

inline void ScaleBy(Numbers& x, double factor) {
  for (double& v : x) v *= factor;
}

// In a random order, each twice as often absent as there. `own`: the rule has a
// decay of its own, which is then by what the hook says.
inline std::vector<std::pair<GradientHook, Hook>> RandomHooks(
    std::mt19937& random, bool own) {
  std::vector<std::pair<GradientHook, Hook>> hooks = {
      {gradients::ClipByGlobalNorm(0.25),
       [](Parameters&, ByName& g, Hooked&) {
         double square = 0;
         for (const auto& [name, x] : g) square += Norm(x) * Norm(x);
         const double factor = 0.25 / std::max(std::sqrt(square), 0.25);
         for (auto& [name, x] : g) ScaleBy(x, factor);
       }},
      {gradients::ClipByNorm(0.125),
       [](Parameters&, ByName& g, Hooked&) {
         for (auto& [name, x] : g) {
           ScaleBy(x, 0.125 / std::max(Norm(x), 0.125));
         }
       }},
      {gradients::ClipByValue(0.0625),
       [](Parameters&, ByName& g, Hooked&) {
         for (auto& [name, x] : g) {
           for (double& v : x) v = std::clamp(v, -0.0625, 0.0625);
         }
       }},
      {gradients::WeightDecay(0.25),
       [own](Parameters& all, ByName& g, Hooked&) {
         for (auto& [name, x] : g) {
           Parameter& p = all.at(name);
           p.decay = 0.25;
           for (size_t i = 0; !own && p.decays && i < x.size(); ++i) {
             x[i] += 0.25 * p.value[i];
           }
         }
       }},
      {gradients::Accumulate(3), [](Parameters& all, ByName& g, Hooked& run) {
         const double of = run.number;
         run.update = std::fmod(of, 3) == 0;
         run.number = std::floor(of / 3);
         for (auto& [name, x] : g) {
           Numbers& sum = all.at(name).collected;
           for (size_t i = 0; i < x.size(); ++i) {
             const double total = sum[i] + (run.finite ? x[i] : 0);
             sum[i] = run.update ? 0 : total;
             x[i] = total / 3;
           }
         }
         run.finite = true;
       }}};
  std::shuffle(hooks.begin(), hooks.end(), random);
  std::erase_if(hooks, [&](const auto&) { return random() % 3 != 0; });
  return hooks;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_OPTIMIZERS_BY_HAND_H_
