// Gradient hooks change gradients between differentiation and the update:
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

// The state of Minimize while it builds. A hook may change the fields whose
// comments say so.
struct MinimizeContext {
  Graph& graph;
  // int64 scalar: the number of completed runs of the training operation, of
  // several in a graph of this one alone.
  Output global_step;
  // float32 scalar.
  Output learning_rate;
  // bool scalar, for a hook to set: whether this run updates the variables and
  // the optimizer's slots. Empty: every run does.
  Output condition;
  // bool scalar with loss scaling, else empty: whether all gradients of this
  // run are finite; if not, the run does not update. A hook that accumulates
  // gradients must leave out those of such a run, and may then clear this.
  Output finite;
  // int64 scalar: the number of this update, counted from 1. A hook that sets
  // the condition sets this, too.
  Output update_number;
  // Operations that every run does beside the updates; a hook may add some.
  std::vector<Operation> operations;
};

using GradientHook = std::function<void(
    MinimizeContext& context, std::vector<GradientAndVariable>& pairs)>;

// A hook that may see, in place of a whole gradient, the slices of a gradient
// of rows: one for each row, and further ones of zeros. It must leave zeros as
// they are, and change other elements by their values, not their positions.
// Minimize recognises such a hook by this type (Optimizer::WithSparseRows).
struct SlicesHook {
  GradientHook hook;
  void operator()(MinimizeContext& context,
                  std::vector<GradientAndVariable>& pairs) const {
    hook(context, pairs);
  }
};

// Whether a variable of that name is one in which Accumulate keeps gradients.
bool IsAccumulatedGradient(std::string_view name);

// Selects variables by name, such as those to leave out.
using NamePredicate = std::function<bool(const std::string& name)>;
// Biases and the parameters of normalisation layers: names that end in "bias",
// "scale" or "offset".
bool IsBiasOrNorm(const std::string& name);

// Weight decay. As a hook, which Minimize recognises by this type, it adds
// rate * variable to the gradient.
struct DecayHook {
  double rate = 0;
  NamePredicate exclude = nullptr;  // null: none
  // The rate for a variable; 0 if it is excluded.
  double Of(const Output& variable) const {
    return exclude && exclude(variable.name()) ? 0 : rate;
  }
  void operator()(MinimizeContext& context,
                  std::vector<GradientAndVariable>& pairs) const;
};

// Accumulates the gradients of n runs. Minimize recognises the hook by this
// type.
struct AccumulateHook {
  int64_t n = 1;
  void operator()(MinimizeContext& context,
                  std::vector<GradientAndVariable>& pairs) const;
};

namespace gradients {

// These three are SlicesHooks.
//
// Multiplies all gradients by min(1, max_norm / norm), where norm is taken over
// all of them together (Pascanu, Mikolov and Bengio, 2013), in float64, which
// holds the squares of all floats. A factor below the normal numbers of a
// gradient's dtype (1.2e-38 for float32) makes that gradient 0.
GradientHook ClipByGlobalNorm(double max_norm);
// Clips each gradient by its own norm: times min(1, max_norm / norm).
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
// "<variable>/gradient_sum" (named on as UpdateRule::Slot is); every n-th run
// updates. The global step counts runs. With loss scaling, a run that
// overflowed adds nothing.
GradientHook Accumulate(int64_t n);

}  // namespace gradients
}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_GRADIENT_HOOKS_H_
