// Checks of the numbers that optimizers and schedules are given. Internal to
// models/optim.
#ifndef SLUICE_MODELS_OPTIM_HYPERPARAMETERS_H_
#define SLUICE_MODELS_OPTIM_HYPERPARAMETERS_H_

#include <limits>
#include <string_view>

namespace sluice {

// Whether x is not negative, and finite in float32, too.
inline bool IsFactor(double x) {
  return x >= 0 && x <= double{std::numeric_limits<float>::max()};
}

// These throw Error(kInvalidArgument) unless IsFactor(x), or 0 <= x < 1, in
// float32, too: "adam: wanted a beta1 in [0, 1), got 1".
void RequireFactor(std::string_view who, std::string_view name, double x);
void RequireFraction(std::string_view who, std::string_view name, double x);

// Those that rules of two moments have in common.
template <typename Options>
void RequireMoments(std::string_view who, const Options& options) {
  RequireFraction(who, "beta1", options.beta1);
  RequireFraction(who, "beta2", options.beta2);
  RequireFactor(who, "epsilon", options.epsilon);
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_HYPERPARAMETERS_H_
