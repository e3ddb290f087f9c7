// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", 2018),
// for gradients in float16, whose smallest value is 6e-8. The loss is taken
// times a power of two, gradients are divided by it in float32; where one of
// them is not finite the step changes nothing but the scale, which is halved.
// After a number of good steps in a row it is doubled.
#ifndef SLUICE_MODELS_OPTIM_LOSS_SCALE_H_
#define SLUICE_MODELS_OPTIM_LOSS_SCALE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "models/optim/gradient_hooks.h"

namespace SLUICE_PUBLIC sluice {

struct LossScaleOptions {
  double initial = 32768;
  int64_t window = 2000;  // good steps in a row until the scale is doubled
};

// The scale is not halved below this: an overflow is then not due to it.
inline constexpr double kLeastLossScale = 1;
// Of more, what gradients are multiplied by to take it out would be denormal:
// flushed to 0, and all gradients with it.
inline constexpr double kMostLossScale = 0x1p126;

// The state is in non-trainable variables, and so in checkpoints:
// "loss_scale/scale" (float32), "loss_scale/good_steps" and
// "loss_scale/skipped_steps" (int64).
class LossScale {
 public:
  // Throws Error unless kLeastLossScale <= initial <= kMostLossScale and
  // 1 <= window, and where the graph has a loss scale.
  LossScale(Graph& graph, const LossScaleOptions& options);

  // The gradient that differentiation begins with, that of the scaled loss with
  // respect to the loss: the scale, in the loss's dtype.
  Output Seed(const Output& loss) const;
  // Divides the gradients by the scale. Returns whether all of them are finite,
  // a bool scalar.
  Output Unscale(std::vector<GradientAndVariable>& pairs) const;
  // Halves or doubles the scale as due; `finite` is what Unscale returned.
  Operation Update(const Output& finite) const;
  // int64 scalar: steps skipped before this one.
  const Output& skipped() const { return skipped_; }

 private:
  LossScaleOptions options_;
  Output scale_, good_steps_, skipped_;
};

inline constexpr std::string_view kLossScaleVariables = "loss_scale/";
// Whether a variable of this name is part of the state. A checkpoint with it
// fits a training without and the other way round.
inline bool IsLossScaleState(std::string_view name) {
  return name.starts_with(kLossScaleVariables);
}

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_LOSS_SCALE_H_
