// Optimizers for large batches.
#include "graph/ops/elementwise.h"
#include "graph/ops/optimizer.h"
#include "graph/ops/shape.h"
#include "graph/ops/state.h"
#include "models/optim/hyperparameters.h"
#include "models/optim/optimizers.h"
#include "models/optim/squared_norm.h"

namespace sluice::optimizers {
namespace {

bool Adapts(const NamePredicate& exclude, const Output& variable) {
  return !exclude || !exclude(variable.name());
}

// above / below, or 1 where a and b, which are not negative, are not both
// positive.
Output RatioOr1(const Output& above, const Output& below, const Output& a,
                const Output& b) {
  const Output both = LogicalAnd(Greater(a, 0), Greater(b, 0));
  return Select(both, above / Select(both, below, 1), OnesLike(above));
}

}  // namespace

Optimizer Lars(LearningRate rate, const LarsOptions& options) {
  RequireFinite("lars", "momentum", options.momentum);
  RequireFactor("lars", "weight_decay", options.weight_decay);
  RequireFactor("lars", "trust", options.trust);
  RequireFactor("lars", "epsilon", options.epsilon);
  const auto apply = [options](const Update& u) {
    Output g = u.gradient;
    const double decay = u.weight_decay;
    Output ratio;
    if (Adapts(options.exclude, u.variable)) {
      const Output of_w = Sqrt(SquaredNorm(u.variable, u.variable));
      const Output of_g = Sqrt(SquaredNorm(g, u.variable));
      ratio = RatioOr1(options.trust * of_w,
                       of_g + decay * of_w + options.epsilon, of_w, of_g);
    }
    if (decay != 0) g = g + decay * u.variable;
    if (ratio.valid()) g = g * Cast(ratio, g.dtype());
    return ApplyMomentum(
        u.variable, u.slots[0], u.learning_rate, g,
        {.momentum = options.momentum, .nesterov = options.nesterov});
  };
  return {std::move(rate),
          {.name = "lars",
           .slots = {{"velocity"}},
           .apply = apply,
           .decay = DecayHook{options.weight_decay, options.exclude}}};
}

Optimizer Lamb(LearningRate rate, const LambOptions& options) {
  RequireMoments("lamb", options);
  RequireFactor("lamb", "weight_decay", options.weight_decay);
  const auto apply = [options](const Update& u) {
    const DType dtype = u.variable.dtype();
    const Output& g = u.gradient;
    // 1 - beta^number, by which means of few gradients are too small.
    const auto corrected = [&](const Output& mean, double beta) {
      // Where gradients are only collected so far, it is 0.
      const Output number = Maximum(Cast(u.number, DType::kFloat64), 1);
      const Output whole = 1 - Pow(OnesLike(number) * beta, number);
      return mean / Cast(whole, dtype);
    };
    const auto mean = [&](const Output& slot, double beta,
                          const Output& value) {
      return Assign(slot, beta * slot + (1 - beta) * value);
    };
    const Output m = mean(u.slots[0], options.beta1, g);
    const Output v = mean(u.slots[1], options.beta2, Square(g));
    Output step = corrected(m, options.beta1) /
                  (Sqrt(corrected(v, options.beta2)) + options.epsilon);
    if (u.weight_decay != 0) step = step + u.weight_decay * u.variable;
    Output rate_of_it = Cast(u.learning_rate, DType::kFloat64);
    if (Adapts(options.exclude, u.variable)) {
      const Output of_w = Sqrt(SquaredNorm(u.variable, u.variable));
      const Output of_step = Sqrt(SquaredNorm(step, u.variable));
      rate_of_it = rate_of_it * RatioOr1(of_w, of_step, of_w, of_step);
    }
    return AssignSub(u.variable, step * Cast(rate_of_it, dtype));
  };
  return {std::move(rate),
          {.name = "lamb",
           .slots = {{"m"}, {"v"}},
           .apply = apply,
           .decay = DecayHook{options.weight_decay, options.exclude}}};
}

}  // namespace sluice::optimizers
