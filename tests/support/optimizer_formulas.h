// What optimizers do to one element, in double: the formulas of
// tests/golden/README.md, with numbers that float32 has exactly.
#ifndef SLUICE_TESTS_SUPPORT_OPTIMIZER_FORMULAS_H_
#define SLUICE_TESTS_SUPPORT_OPTIMIZER_FORMULAS_H_

#include <cmath>
#include <functional>

namespace sluice::testing::formulas {

inline constexpr double kRate = 0.0625;

struct Element {
  double p, g, a, b;  // parameter, gradient, slots in the op's order
  double number;      // of the update, from 1
};
using Formula = std::function<void(Element&)>;

inline void Sgd(Element& e) {
  e.p -= kRate * e.g;
}

// Momentum 0.75.
inline Formula Momentum(bool nesterov) {
  return [=](Element& e) {
    e.a = 0.75 * e.a + e.g;
    e.p -= kRate * (nesterov ? e.g + 0.75 * e.a : e.a);
  };
}

// Decay 0.75, epsilon 0.5.
inline void RmsProp(Element& e) {
  e.a = 0.75 * e.a + 0.25 * e.g * e.g;
  e.p -= kRate * e.g / (std::sqrt(e.a) + 0.5);
}

// The same with momentum 0.5.
inline void RmsPropMomentum(Element& e) {
  e.a = 0.75 * e.a + 0.25 * e.g * e.g;
  e.b = 0.5 * e.b + e.g / (std::sqrt(e.a) + 0.5);
  e.p -= kRate * e.b;
}

// Epsilon 0.5.
inline void Adagrad(Element& e) {
  e.a += e.g * e.g;
  e.p -= kRate * e.g / (std::sqrt(e.a) + 0.5);
}

// beta1 0.75, beta2 0.875, epsilon 0.5.
inline Formula Adam(double weight_decay) {
  return [=](Element& e) {
    e.p -= kRate * weight_decay * e.p;
    e.a = 0.75 * e.a + 0.25 * e.g;
    e.b = 0.875 * e.b + 0.125 * e.g * e.g;
    const double m = e.a / (1 - std::pow(0.75, e.number));
    const double v = e.b / (1 - std::pow(0.875, e.number));
    e.p -= kRate * m / (std::sqrt(v) + 0.5);
  };
}

}  // namespace sluice::testing::formulas

#endif  // SLUICE_TESTS_SUPPORT_OPTIMIZER_FORMULAS_H_
