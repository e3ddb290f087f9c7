// Checks of the numbers that optimizers and schedules are given. Internal to
// models/optim.
#ifndef SLUICE_MODELS_OPTIM_HYPERPARAMETERS_H_
#define SLUICE_MODELS_OPTIM_HYPERPARAMETERS_H_

#include <cmath>
#include <limits>
#include <string_view>

namespace sluice {

// Whether x is finite in float32, too.
inline bool IsFinite(double x) {
  return std::abs(x) <= double{std::numeric_limits<float>::max()};
}
// And not negative.
inline bool IsFactor(double x) {
  return x >= 0 && IsFinite(x);
}

// These throw Error(kInvalidArgument) unless IsFinite(x) or IsFactor(x).
void RequireFinite(std::string_view who, std::string_view name, double x);
void RequireFactor(std::string_view who, std::string_view name, double x);

// These throw Error(kInvalidArgument): "adam: wanted a beta2 in [0, 1), got 1".
// Unless 0 <= x < 1.
void RequireFraction(std::string_view who, std::string_view name, double x);
// The same in float32, too.
void RequireFraction32(std::string_view who, std::string_view name, double x);
// Unless -1 < x < 1 in float32, too.
void RequireSigned32(std::string_view who, std::string_view name, double x);

// Those that rules of two moments have in common. The second is of squares,
// whose mean has a root: no weight in it is negative.
template <typename Options>
void RequireMoments(std::string_view who, const Options& options) {
  RequireSigned32(who, "beta1", options.beta1);
  RequireFraction32(who, "beta2", options.beta2);
  RequireFactor(who, "epsilon", options.epsilon);
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_HYPERPARAMETERS_H_
