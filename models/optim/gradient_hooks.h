// What may happen to gradients between differentiation and the update:
// functions over (gradient, variable) pairs, run in the order given to
// Optimizer::With. Clipping, accumulation and weight decay are here; loss
// scaling and distribution are hooks of the same kind.
#ifndef SLUICE_MODELS_OPTIM_GRADIENT_HOOKS_H_
#define SLUICE_MODELS_OPTIM_GRADIENT_HOOKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

struct GradientAndVariable {
  Output gradient;  // the variable's dtype and shape
  Output variable;
};

// What Minimize knows while it builds. A hook may change what it says it may.
struct MinimizeContext {
  Graph& graph;
  // int64 scalar: runs of the training operation that are completed.
  Output global_step;
  // float32 scalar.
  Output learning_rate;
  // bool scalar, for a hook to set: whether this run updates the variables and
  // the optimizer's slots. Empty: every run does.
  Output condition;
  // bool scalar with loss scaling, else empty: whether all gradients of this
  // run are finite. Where not, it does not update. A hook that keeps gradients
  // must keep none of these, and then may clear this.
  Output finite;
  // int64 scalar, which goes with the condition: the number of this update,
  // counted from 1.
  Output update_number;
  // For a hook to add to: what every run does beside the updates.
  std::vector<Operation> operations;
};

using GradientHook = std::function<void(
    MinimizeContext& context, std::vector<GradientAndVariable>& pairs)>;

// A hook to which the slices of a gradient of rows, one of each row and further
// ones of zeros, may stand for the gradient, whatever their shape: it does to
// zeros nothing, and to others what depends on their values, not on where they
// are. Minimize knows a GradientHook by this type (Optimizer::WithSparseRows).
struct SlicesHook {
  GradientHook hook;
  void operator()(MinimizeContext& context,
                  std::vector<GradientAndVariable>& pairs) const {
    hook(context, pairs);
  }
};

// Whether a variable of that name is what Accumulate keeps.
bool IsAccumulatedGradient(std::string_view name);

// Which variables to leave out, by name.
using NamePredicate = std::function<bool(const std::string& name)>;
// Biases and the parameters of normalisation layers: names that end in "bias",
// "scale" or "offset".
bool IsBiasOrNorm(const std::string& name);

// What weights decay by. As a hook, which Minimize knows by this type, it adds
// rate * variable to the gradient.
struct DecayHook {
  double rate = 0;
  NamePredicate exclude = nullptr;  // null: none
  // 0 for those that are excluded.
  double Of(const Output& variable) const {
    return exclude && exclude(variable.name()) ? 0 : rate;
  }
  void operator()(MinimizeContext& context,
                  std::vector<GradientAndVariable>& pairs) const;
};

// Collects gradients of n runs, of which Minimize knows by this type.
struct AccumulateHook {
  int64_t n = 1;
  void operator()(MinimizeContext& context,
                  std::vector<GradientAndVariable>& pairs) const;
};

namespace gradients {

// These three are SlicesHooks.
//
// All gradients times min(1, max_norm / norm), norm being that of all of them
// taken together (Pascanu, Mikolov and Bengio, 2013), in float64, which holds
// the squares of all floats. A factor below the normal numbers of a gradient's
// dtype (1.2e-38 of float32) makes zeros of it.
GradientHook ClipByGlobalNorm(double max_norm);
// The same for each by itself.
GradientHook ClipByNorm(double max_norm);
// Each element limited to [-limit, limit].
GradientHook ClipByValue(double limit);

// A DecayHook: adds rate * variable to the gradient, as a loss term
// rate / 2 * variable^2 would, but behind all other hooks, whatever the order:
// what is clipped is the gradient of the loss alone, as in PyTorch. Optimizers
// with a decay of their own, apart from the gradient (AdamW, Lars, Lamb), decay
// by this rate in place of theirs, and the gradient has none.
GradientHook WeightDecay(double rate, NamePredicate exclude = IsBiasOrNorm);

// An AccumulateHook: collects the mean gradient of n runs, in variables
// "<variable>/gradient_sum"; every n-th run updates. The global step counts
// runs. With loss scaling, a run that overflowed adds nothing.
GradientHook Accumulate(int64_t n);

}  // namespace gradients
}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_GRADIENT_HOOKS_H_
