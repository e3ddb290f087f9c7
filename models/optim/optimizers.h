// Optimizers: values that describe how to train; Minimize builds it.
//
//   Operation train = optimizers::Momentum(0.1, 0.9)
//       .With(gradients::ClipByGlobalNorm(1)).Minimize(loss);
//
// The formulas are PyTorch's (graph/ops/optimizer.h has them).
#ifndef SLUICE_MODELS_OPTIM_OPTIMIZERS_H_
#define SLUICE_MODELS_OPTIM_OPTIMIZERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/dtype.h"
#include "engine/visibility.h"
#include "graph/autograd.h"
#include "graph/graph.h"
#include "graph/step_request.h"
#include "models/optim/gradient_hooks.h"
#include "models/optim/loss_scale.h"
#include "models/optim/schedule.h"

namespace SLUICE_PUBLIC sluice {

// Sizes of the buckets in which gradients are reduced. Gradients of fewer bytes
// are joined until they have that many, so that they do not each pay for a
// round of messages. Larger ones are not: joining copies them twice, which
// takes longer than a round, about 20 us. The bucket that is reduced first has
// a size of its own: before it is complete nothing can overlap.
struct BucketBytes {
  size_t first = size_t{512} << 10;
  size_t others = size_t{512} << 10;
};

// Options of Optimizer::WithAllReduce.
struct AllReduceOptions {
  // The name of a float32 scalar of the graph, the weight of this worker's
  // share, with mean 1 over the workers: the loss and updates are multiplied by
  // it. Empty: all shares have the same weight.
  std::string weight = {};
  // The dtype that float32 gradients are rounded to between workers: kFloat16
  // or kBFloat16 halve the bytes. Gradients are divided by the number of
  // workers first, added in float32 and rounded after each addition. kFloat16
  // has more digits, but values beyond 65,504 become infinite and those below
  // 6e-8 zero: it needs loss scaling. kFloat32: no rounding.
  DType between = DType::kFloat32;
  BucketBytes buckets = {};  // each 1 or more, in the dtype `between`
  // Whether the operation is run in two halves, cut at its all-reduces: the
  // first computes their operands, any number of times, and the second is fed
  // their results. Variables written by Graph::updates and the loss are then
  // written in the second half alone, provided that before it variables have
  // the values that they had before the first. The operation itself does not
  // run these updates, only what they reduce.
  bool in_two = false;
  // Whether nothing may be written before all is reduced: because all workers
  // share the same variables, for which one worker runs the operation and the
  // others what it reduces, or because a worker that is gone must not leave
  // half a step. Of the values that Graph::updates assign only the mean is then
  // written. Updates that do not assign, whose values have no mean or depend on
  // another update's new value are Error(kUnimplemented).
  bool shared = false;
  // The feeds of a worker with the largest share of a batch, which tell how
  // many rows of a table a worker reads at most, and the number of workers:
  // gradients of rows (WithSparseRows) are then exchanged as rows. Empty: all
  // are exchanged as whole gradients, and so they are with in_two and, unless
  // rows_shared is set, with shared: if all workers share the same variables,
  // rows are all that is needed to update them.
  std::vector<FeedShape> largest_share = {};
  int64_t workers = 0;
  bool rows_shared = false;
  // With shared variables: rather than being reduced, the gradients of each of
  // `workers` workers go into variables of its own, by another operation, and
  // this operation uses the mean of those that it is told are admitted
  // (models/optim/contributions.h). Gradients are exchanged whole.
  bool contributed = false;
};

// One variable's update, while it is being built.
struct Update {
  Output variable;
  std::vector<Output> slots;  // as the rule names them
  Output gradient;
  Output learning_rate;  // float32 scalar
  Output number;         // int64 scalar, of this update, from 1
  // Valid where the gradient is of some rows of the variable (RowsGradient).
  Output rows = {};
  double weight_decay = 0;  // where the rule decays (UpdateRule::decay)
};

// How an optimizer updates a variable.
struct UpdateRule {
  // A further tensor per variable, with the variable's dtype and shape: the
  // non-trainable variable "<variable>/<name>"; of further trainings of the
  // variable "<variable>/<name>_1" and so on.
  struct Slot {
    std::string name;
    double first = 0;
  };
  std::string name;  // "adam"
  std::vector<Slot> slots;
  // Updates variable and slots in place; returns the variable's new value. In
  // runs that are not to update, the ops it is made of are skipped
  // (MakeConditional).
  std::function<Output(const Update& update)> apply;
  // What `apply` does with gradients of rows; it leaves other rows alone.
  enum class Rows : uint8_t {
    kNever,   // does not take them
    kOnWish,  // takes them; a gradient of 0 would change the other rows
    kAlways,  // takes them, with the same bits as zeros for the other rows
  };
  Rows rows = Rows::kNever;
  // For a rule that decays variables apart from their gradients: the decay, if
  // no gradients::WeightDecay sets it.
  std::optional<DecayHook> decay = {};
};

// An immutable value; holds no graph.
class Optimizer {
 public:
  Optimizer(LearningRate rate, UpdateRule rule)
      : rate_(std::move(rate)), rule_(std::move(rule)) {}

  // This optimizer with one more hook, which runs after the others; but
  // gradients::WeightDecay hooks come last.
  Optimizer With(GradientHook hook) const;
  Optimizer WithLearningRate(LearningRate rate) const;
  // This optimizer with gradients that compute activations again rather than
  // keep them.
  Optimizer WithRecompute(Recompute which = Recompute::kAll) const;
  // This optimizer with `factor` times the learning rate for variables whose
  // names match (name_pattern.h); of several factors for a variable the one
  // added last counts. One below 0 climbs the loss. Throws Error for a factor
  // that is not finite, Minimize for patterns that match none.
  Optimizer WithRateFactor(std::string patterns, double factor) const;
  // This optimizer, updating only the rows that a step has read of variables
  // whose names match (name_pattern.h) and that the loss depends on through
  // Gather along the first dimension alone (layers::Embedding). The gradient of
  // a large table is then no larger than what was read of it, and rows that
  // were not read keep their values, and what the optimizer keeps of them, to
  // the bit. For Momentum, Nesterov, RmsProp, Adam and AdamW this changes the
  // rule: a row's velocity and means stand still until it is read again, where
  // otherwise they move it, and fade, in every step; weight decay spares it;
  // Adam's correction of the first steps counts all steps, not the row's
  // ("lazy" Adam). For Sgd and Adagrad the rule is the same, and they do this
  // by themselves if no hook sees the gradients and, with several workers, if
  // rows are fewer bytes to exchange. Minimize throws Error if the optimizer
  // has no update of rows (Lars, Lamb), with a hook that sees whole gradients
  // (all but a SlicesHook), with WithAllReduce that does not say the largest
  // share, and for patterns that match none.
  Optimizer WithSparseRows(std::string patterns = "*") const;
  // This optimizer, also keeping an average of each variable it updates, the
  // non-trainable variable "<variable>/average": after update n it becomes
  // d * average + (1 - d) * variable, d = min(decay, (n - 1) / (n + 9)), so
  // that early values are soon forgotten. Evaluation and exports use the
  // averages (Polyak and Juditsky, 1992; for networks, Szegedy et al., 2016).
  // Throws Error unless 0 <= decay < 1; Minimize throws Error where there is an
  // average already, of another training of the variable.
  Optimizer WithAverages(double decay) const;
  // This optimizer with a scaled loss, for training in float16. A step whose
  // gradients overflow leaves all variables as they were (the optimizer's
  // slots, averages and all that Graph::updates and the loss write included),
  // but for GlobalStep, which counts it, and the scale; the number of updates
  // does not count it. Hooks see gradients without the scale. Where gradients
  // are of what the step has written Minimize throws Error(kUnimplemented),
  // unless it is in_two (AllReduceOptions).
  Optimizer WithLossScaling(const LossScaleOptions& options = {}) const;
  // This optimizer for one of several workers, each of which differentiates the
  // loss of its share of a batch: gradients, and the values that Graph::updates
  // and the loss (or nodes they need) write, become the means over all workers
  // (SessionOptions::collective), before the loss scale is taken out and before
  // the hooks. With one worker it changes no value but by `between`.
  Optimizer WithAllReduce(AllReduceOptions options = {}) const;
  // This optimizer with the settings of `other` by the functions above: hooks,
  // rate factors, sparse rows, recomputation, averages, loss scaling,
  // all-reduce. A gradients::WeightDecay of `other` replaces the rule's decay.
  Optimizer WithExtrasOf(const Optimizer& other) const;

  // Builds gradients of the scalar `loss`, the hooks, the updates of
  // `variables` (empty: all trainable ones that it depends on), Graph::updates
  // and the increment of GlobalStep. The result is the operation that trains
  // one step. The rate it uses is node "learning_rate" (below the current
  // scope). Of several trainings in a graph each names its variables, and goes
  // by its own runs, which the variable "<first of `variables`>/runs" counts:
  // its rate, averages and updates are those of a training alone in a graph.
  // Each of them increments GlobalStep, so that two in one run must be ordered:
  // the second Minimize is built inside ControlScope(graph, {first}), and
  // running what it returns runs both. The second's loss must not come after
  // the first's operation, and is built before: it and its gradients are of
  // the values that the first has not written yet. Of several trainings one
  // may have a loss scale, which a graph has one of: of Graph::updates it then
  // has nodes of its own, so that it cannot be in one run with others that have
  // them, too. What is written on the way to an update or to the loss it cannot
  // leave out for itself alone: where another training writes it, Minimize
  // throws Error(kUnimplemented). Throws Error when there is nothing to train.
  Operation Minimize(Operand loss,
                     const std::vector<Output>& variables = {}) const;

  const std::string& name() const { return rule_.name; }
  const LearningRate& learning_rate() const { return rate_; }
  // How many runs' gradients make an update (gradients::Accumulate).
  int64_t accumulates() const;
  // Whether WithLossScaling was used.
  bool scales_loss() const { return loss_scaling_.has_value(); }

 private:
  // Update::weight_decay.
  double DecayOf(const Output& variable) const;
  // Whether gradients::WeightDecay changes the gradients.
  bool DecaysGradients() const { return !decays_.empty() && !rule_.decay; }
  // Whether anything changes the gradients that differentiation finds.
  bool ChangesGradients() const { return !hooks_.empty() || DecaysGradients(); }
  // Whether gradients of rows, if they are reduced, are reduced as rows.
  bool RowsTravel() const;
  // Those of `variables` whose gradients may be of rows.
  std::vector<Output> Tables(const std::vector<Output>& variables) const;

  LearningRate rate_;
  UpdateRule rule_;
  std::vector<GradientHook> hooks_;
  std::vector<DecayHook> decays_;  // after those
  std::vector<std::pair<std::string, double>> rate_factors_;
  std::vector<std::string> sparse_rows_;  // patterns
  GradientOptions gradients_;
  std::optional<double> average_decay_;
  std::optional<LossScaleOptions> loss_scaling_;
  std::optional<AllReduceOptions> all_reduce_;
};

// The int64 variable "global_step" of a graph, made when there is none: how
// many times training operations have run, of several trainings all together.
Output GlobalStep(Graph& graph);

// All throw Error(kInvalidArgument) for a beta1 outside of (-1, 1), a beta2 or
// decay of means outside of [0, 1), a momentum that is not finite, and other
// numbers that are negative or not finite.
namespace optimizers {

Optimizer Sgd(LearningRate rate);
Optimizer Momentum(LearningRate rate, double momentum = 0.9);
Optimizer Nesterov(LearningRate rate, double momentum = 0.9);

struct RmsPropOptions {
  double decay = 0.9;
  double momentum = 0;
  double epsilon = 1e-8;
};
Optimizer RmsProp(LearningRate rate, const RmsPropOptions& options = {});

struct AdagradOptions {
  double initial_accumulator = 0;
  double epsilon = 1e-10;
};
Optimizer Adagrad(LearningRate rate, const AdagradOptions& options = {});

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
Optimizer Adam(LearningRate rate = 0.001, const AdamOptions& options = {});

struct AdamWOptions {
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  NamePredicate exclude = IsBiasOrNorm;  // from the decay
};
Optimizer AdamW(LearningRate rate = 0.001, const AdamWOptions& options = {});

// For large batches, LARS and LAMB: the step of a variable w is scaled by its
// own norm.

// You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks"
// (2017): Momentum with the gradient g' = ratio * (g + weight_decay * w) in
// place of g, ratio = trust * |w| / (|g| + weight_decay * |w| + epsilon), or 1
// where |w| or |g| is 0. (The rate is not part of the velocity, as in
// Momentum.)
struct LarsOptions {
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double trust = 0.001;
  double epsilon = 1e-8;
  bool nesterov = false;
  NamePredicate exclude = IsBiasOrNorm;  // these have ratio 1 and no decay
};
Optimizer Lars(LearningRate rate, const LarsOptions& options = {});

// You et al., "Large Batch Optimization for Deep Learning" (2020): Adam's
// direction r, with its correction of the first steps, plus weight_decay * w,
// times the rate and |w| / |r|, or 1 where either is 0.
struct LambOptions {
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  NamePredicate exclude = IsBiasOrNorm;  // these are updated as by Adam
};
Optimizer Lamb(LearningRate rate = 0.001, const LambOptions& options = {});

// "sgd", "momentum", "nesterov", "rmsprop", "adagrad", "adam", "adamw", "lars"
// or "lamb", with its customary learning rate. Throws Error(kNotFound) listing
// them.
Optimizer ByName(std::string_view name);

}  // namespace optimizers
}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_OPTIMIZERS_H_
