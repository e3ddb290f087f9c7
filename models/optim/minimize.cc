// Optimizer::Minimize: gradients, hooks, updates.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "graph/ops/control.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/shape.h"
#include "graph/ops/state.h"
#include "models/optim/beside.h"
#include "models/optim/contributions.h"
#include "models/optim/find_gradients.h"
#include "models/optim/hyperparameters.h"
#include "models/optim/name_pattern.h"
#include "models/optim/optimizers.h"
#include "models/optim/own_updates.h"
#include "models/optim/reduce_gradients.h"
#include "models/optim/reduce_rows.h"
#include "models/optim/root_scalar.h"

namespace sluice {
namespace {

constexpr RootScalar kGlobalStep = {"global_step", DType::kInt64,
                                    "training's counter"};
constexpr std::string_view kRunCount = "runs";
constexpr const char* kAverage = "average";

void CheckLoss(const Operand& loss) {
  const Output& output = loss.tensor();
  if (!output.shape().scalar() || !IsFloating(output.dtype())) {
    throw Error(Code::kInvalidArgument,
                fmt::format("Minimize: the loss must be a floating-point "
                            "scalar, got {} '{}'; take its Mean ({})",
                            output.type().ToString(), output.name(),
                            FormatLocation(loss.location())));
  }
}

// By the variables' names; 1 for those that are not there.
std::map<std::string, double> RateFactors(
    const std::vector<std::pair<std::string, double>>& by_patterns,
    const std::vector<GradientAndVariable>& pairs) {
  std::vector<std::string> names;
  for (const auto& [gradient, variable] : pairs) {
    names.push_back(variable.name());
  }
  std::map<std::string, double> factors;
  for (const auto& [patterns, factor] : by_patterns) {
    const auto selected = SelectNames(patterns, names);
    if (!selected.ok()) {
      throw Error(selected.status().WithContext(
          "learning rates of the variables that are trained"));
    }
    for (const std::string& name : *selected) factors[name] = factor;
  }
  return factors;
}

std::vector<Output> MakeSlots(const UpdateRule& rule, const Output& variable) {
  Graph& graph = variable.graph();
  NameScope names(Scope(graph, variable.name()));
  std::vector<Output> slots;
  for (const UpdateRule::Slot& slot : rule.slots) {
    slots.push_back(
        graph.Variable(NameBeside(graph, slot.name),
                       Filled(slot.first, variable.shape(), variable.dtype()),
                       BesideOptions(variable)));
  }
  return slots;
}

// Virtual workers and those with common variables have no parts of their own.
void CheckNoParts(const AllReduceOptions& options,
                  const std::vector<GradientAndVariable>& pairs) {
  if (!options.in_two && !options.shared) return;
  for (const GradientAndVariable& pair : pairs) {
    const Node& variable = pair.variable.node();
    if (variable.part_of() == 0) continue;
    throw Error(
        Code::kInvalidArgument,
        fmt::format("'{}' is cut over the workers (--shard-classes), which "
                    "is not for {} ({})",
                    variable.name(),
                    options.in_two
                        ? "virtual workers"
                        : "variables on parameter servers or elastic jobs",
                    variable.location()));
  }
}

// Builds the update; with a condition, all ops in it that update something
// depend on that.
Operation BuildUpdate(const Output& condition, const UpdateRule& rule,
                      const Update& update) {
  const auto& nodes = update.variable.graph().nodes();
  const size_t first = nodes.size();
  const Operation applied = rule.apply(update);
  if (!condition.valid()) return applied;
  for (size_t i = first, end = nodes.size(); i < end; ++i) {
    if (nodes[i]->mutates() > 0) {
      MakeConditional(Operation(nodes[i].get()), condition);
    }
  }
  return applied;
}

// Counts the runs of one of several trainings in a graph, all of which
// GlobalStep counts: "<variable>/runs" of the first that it updates.
Output MakeRunCount(const Output& variable) {
  Graph& graph = variable.graph();
  DeviceScope anywhere(graph, "");
  NameScope names(Scope(graph, variable.name()));
  return graph.Variable(NameBeside(graph, kRunCount), Zeros({}, DType::kInt64),
                        {.trainable = false});
}

// Refuses, of several trainings, one that names no variables: it takes the runs
// of all for its own, by which schedules, averages and Adam would go wrong.
void CheckNamesVariables(const Operand& loss, bool of_several) {
  const Graph& graph = loss.graph();
  const Output step = FindRootScalar(graph, kGlobalStep);
  if (!step.valid()) return;
  int64_t trainings = 0, counted = 0;
  for (const auto& node : graph.nodes()) {
    if (node->mutates() == 0 || node->op().assigns) continue;
    const Output& variable = node->input(0);
    const std::string& name = variable.name();
    if (variable == step) ++trainings;
    if (name.substr(name.rfind('/') + 1).starts_with(kRunCount)) ++counted;
  }
  if (trainings == 0 || (of_several && counted >= trainings)) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("Minimize: of several trainings in a graph each "
                          "names its variables: pass them as Minimize's "
                          "second argument ({})",
                          FormatLocation(loss.location())));
}

// That no variable has an average, of another training or the model's own:
// evaluation finds the one by its name.
void CheckNoAverages(const Operand& loss,
                     const std::vector<GradientAndVariable>& pairs) {
  for (const GradientAndVariable& pair : pairs) {
    const std::string& name = pair.variable.node().name();
    const Node* there = loss.graph().Find(fmt::format("{}/{}", name, kAverage));
    if (there == nullptr) continue;
    throw Error(Code::kAlreadyExists,
                fmt::format("WithAverages: there is '{}' already ({}), and "
                            "evaluation takes one average of '{}' ({})",
                            there->name(), there->location(), name,
                            FormatLocation(loss.location())));
  }
}

// Moves "<variable>/average" towards the variable, which `updated` has updated
// where the context's condition holds. Until the second update it is the
// variable: its first zeros are not to be evaluated.
Operation MoveAverage(const MinimizeContext& context, const Output& variable,
                      const Operation& updated, double decay) {
  NameScope names(Scope(context.graph, variable.name()));
  const Output average = context.graph.Variable(
      kAverage, Zeros(variable.shape(), variable.dtype()),
      BesideOptions(variable));
  const Output number = Cast(context.update_number, DType::kFloat64);
  Output keep = Minimum((number - 1) / (number + 9), decay);
  if (context.condition.valid()) {
    const Output kept = Select(context.condition, keep, OnesLike(keep));
    keep = Select(LessEqual(number, 1), ZerosLike(keep), kept);
  }
  keep = Cast(keep, variable.dtype());
  ControlScope after(context.graph, {updated});
  return Assign(average, keep * average + (1 - keep) * variable);
}

}  // namespace

Output GlobalStep(Graph& graph) {
  return FindOrMakeRootScalar(graph, kGlobalStep, Zeros({}, DType::kInt64));
}

Optimizer Optimizer::With(GradientHook hook) const {
  Optimizer more = *this;
  if (const auto* decay = hook.target<DecayHook>()) {
    more.decays_.push_back(*decay);
  } else {
    more.hooks_.push_back(std::move(hook));
  }
  return more;
}

int64_t Optimizer::accumulates() const {
  int64_t runs = 1;
  for (const GradientHook& hook : hooks_) {
    const auto* of = hook.target<AccumulateHook>();
    if (of != nullptr) runs = std::max(runs, of->n);
  }
  return runs;
}

double Optimizer::DecayOf(const Output& variable) const {
  if (!rule_.decay) return 0;
  if (decays_.empty()) return rule_.decay->Of(variable);
  double rate = 0;
  for (const DecayHook& decay : decays_) rate += decay.Of(variable);
  return rate;
}

Optimizer Optimizer::WithLearningRate(LearningRate rate) const {
  Optimizer other = *this;
  other.rate_ = std::move(rate);
  return other;
}

Optimizer Optimizer::WithRateFactor(std::string patterns, double factor) const {
  RequireFinite("WithRateFactor", "factor", factor);
  Optimizer other = *this;
  other.rate_factors_.emplace_back(std::move(patterns), factor);
  return other;
}

Optimizer Optimizer::WithSparseRows(std::string patterns) const {
  Optimizer other = *this;
  other.sparse_rows_.push_back(std::move(patterns));
  return other;
}

Optimizer Optimizer::WithRecompute(Recompute which) const {
  Optimizer other = *this;
  other.gradients_.recompute = which;
  return other;
}

Optimizer Optimizer::WithAverages(double decay) const {
  RequireFraction("WithAverages", "decay", decay);
  Optimizer other = *this;
  other.average_decay_ = decay;
  return other;
}

Optimizer Optimizer::WithLossScaling(const LossScaleOptions& options) const {
  Optimizer other = *this;
  other.loss_scaling_ = options;
  return other;
}

Optimizer Optimizer::WithAllReduce(AllReduceOptions options) const {
  if (options.between != DType::kFloat32 && !IsHalf(options.between)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("WithAllReduce: gradients travel as float32, "
                            "float16 or bfloat16, not {}",
                            NameOf(options.between)));
  }
  if (options.buckets.first == 0 || options.buckets.others == 0) {
    throw Error(Code::kInvalidArgument,
                "WithAllReduce: buckets of no bytes; wanted 1 or more");
  }
  Optimizer other = *this;
  other.all_reduce_ = std::move(options);
  return other;
}

Optimizer Optimizer::WithExtrasOf(const Optimizer& other) const {
  Optimizer more = *this;
  more.hooks_ = other.hooks_;
  more.decays_ = other.decays_;
  more.rate_factors_ = other.rate_factors_;
  more.sparse_rows_ = other.sparse_rows_;
  more.gradients_ = other.gradients_;
  more.average_decay_ = other.average_decay_;
  more.loss_scaling_ = other.loss_scaling_;
  more.all_reduce_ = other.all_reduce_;
  return more;
}

bool Optimizer::RowsTravel() const {
  return !all_reduce_ ||
         (!all_reduce_->largest_share.empty() && !all_reduce_->in_two &&
          (!all_reduce_->shared || all_reduce_->rows_shared));
}

std::vector<Output> Optimizer::Tables(
    const std::vector<Output>& variables) const {
  if (sparse_rows_.empty()) {
    const bool same = rule_.rows == UpdateRule::Rows::kAlways;
    return same && !ChangesGradients() && RowsTravel() ? variables
                                                       : std::vector<Output>();
  }
  const auto refuse = [&](std::string_view why) {
    throw Error(Code::kUnimplemented,
                fmt::format("sparse rows of '{}': {}",
                            fmt::join(sparse_rows_, ","), why));
  };
  if (rule_.rows == UpdateRule::Rows::kNever) {
    refuse(fmt::format("the optimizer {} updates whole variables alone",
                       rule_.name));
  }
  if (!RowsTravel()) {
    refuse(all_reduce_->largest_share.empty()
               ? "several workers exchange rows only where it is said how many "
                 "there are at most (AllReduceOptions::largest_share)"
               : "virtual workers and those of elastic jobs exchange whole "
                 "gradients alone");
  }
  const bool slices =
      std::all_of(hooks_.begin(), hooks_.end(), [](const GradientHook& hook) {
        return hook.target<SlicesHook>() != nullptr;
      });
  if (!slices || DecaysGradients()) {
    refuse("a gradient hook wants whole gradients (no SlicesHook)");
  }
  std::vector<std::string> names;
  for (const Output& variable : variables) names.push_back(variable.name());
  std::set<std::string> selected;
  for (const std::string& patterns : sparse_rows_) {
    const auto some = SelectNames(patterns, names);
    if (!some.ok()) {
      throw Error(some.status().WithContext("sparse rows"));
    }
    selected.insert(some->begin(), some->end());
  }
  std::vector<Output> tables;
  for (const Output& variable : variables) {
    if (selected.contains(variable.name())) tables.push_back(variable);
  }
  return tables;
}

Operation Optimizer::Minimize(Operand loss,
                              const std::vector<Output>& variables) const {
  Graph& graph = loss.graph();
  LocationScope location(graph, loss.location());
  CheckLoss(loss);
  // Who names the variables may train others of the graph by another operation,
  // in turn with this one.
  const bool of_several = !variables.empty();
  CheckNamesVariables(loss, of_several);
  Output weight;
  if (all_reduce_ && !all_reduce_->weight.empty()) {
    weight = graph.Get(all_reduce_->weight);
    loss = Operand(loss.tensor() * Cast(weight, loss.tensor().dtype()));
  }
  std::optional<LossScale> scale;
  std::vector<Output> seeds;
  if (loss_scaling_) {
    scale.emplace(graph, *loss_scaling_);
    seeds = {scale->Seed(loss.output())};
  }
  FoundGradients gradients = FindGradients(
      loss, variables,
      Tables(variables.empty() ? graph.TrainableVariables() : variables), seeds,
      gradients_);
  std::vector<GradientAndVariable>& pairs = gradients.pairs;
  if (average_decay_) CheckNoAverages(loss, pairs);

  const Output step = GlobalStep(graph);
  const Output runs = of_several ? MakeRunCount(variables[0]) : step;
  const Output rate = Identity(rate_.At(runs), "learning_rate");
  NameScope names(graph, "train");
  MinimizeContext context = {graph,    runs,     rate, Output(),
                             Output(), runs + 1, {}};
  // In two, they come before the cut.
  const bool in_two = all_reduce_ && all_reduce_->in_two;
  const bool shared = all_reduce_ && all_reduce_->shared;
  std::optional<Contributions> contributions;
  if (all_reduce_ && all_reduce_->contributed) {
    SLUICE_CHECK(shared && gradients.rows.empty());
    contributions.emplace(graph, all_reduce_->workers);
  }
  const bool runs_updates = !in_two && !shared;
  std::vector<Operation> updates = graph.updates();
  const bool skips_updates = scale && runs_updates;
  if (of_several && skips_updates) {
    updates = OwnUpdates(updates, loss.tensor());
  }
  if (runs_updates) context.operations = updates;
  // Beside the optimizer's: also what is written on the way to another update,
  // or to the loss.
  updates.emplace_back(loss.tensor());
  const std::vector<Node*> writes = WritesOf(updates);
  if (of_several) {
    CheckOwnWrites(writes, step, skips_updates);
  }
  // Each worker computes the loss by itself.
  if (shared && !in_two) {
    RefuseWrites({Operation(loss.tensor())}, "the loss is of",
                 "where workers share variables, nor in an elastic job");
  }
  if (all_reduce_) {
    CheckNoParts(*all_reduce_, pairs);
    if (contributions) {
      for (auto& [gradient, variable] : pairs) {
        gradient = contributions->Mean(gradient, variable);
      }
    } else {
      const RowsToSend rows = ChooseRows(gradients, *all_reduce_,
                                         /*always=*/!sparse_rows_.empty());
      // Those of tables are the last that are there.
      ReduceGradients(pairs, all_reduce_->between, all_reduce_->buckets,
                      gradients.rows);
      ReduceRows(gradients, rows, all_reduce_->between);
    }
  }
  if (scale || ChangesGradients()) SumSlices(gradients);
  if (scale) {
    const Output finite = scale->Unscale(pairs);
    if (!in_two) {
      RefuseWrites({Operation(finite)}, "gradients are of",
                   "with loss scaling (float16)");
    }
    context.operations.push_back(scale->Update(finite));
    context.finite = finite;
    context.update_number = runs + 1 - scale->skipped();
  }
  if (all_reduce_) {
    const OwnWrites own = shared   ? OwnWrites::kNever
                          : in_two ? OwnWrites::kReduced
                                   : OwnWrites::kFirst;
    for (const Operation& reduced :
         ReduceUpdates(writes, weight, all_reduce_->buckets.others, own,
                       contributions ? &*contributions : nullptr)) {
      if (context.finite.valid()) MakeConditional(reduced, context.finite);
      context.operations.push_back(reduced);
    }
  }
  // What is reduced of them needs no condition of its own.
  if (skips_updates) {
    for (Node* write : writes) {
      MakeConditional(Operation(write), context.finite);
    }
  }
  if (contributions) contributions->Finish();
  for (const GradientHook& hook : hooks_) hook(context, pairs);
  if (DecaysGradients()) {
    for (const DecayHook& decay : decays_) decay(context, pairs);
  }
  if (context.finite.valid()) {
    context.condition = context.condition.valid()
                            ? LogicalAnd(context.condition, context.finite)
                            : context.finite;
  }

  const std::map<std::string, double> factors =
      RateFactors(rate_factors_, pairs);
  std::vector<Operation> operations = context.operations;
  for (const auto& [gradient, variable] : pairs) {
    DeviceScope device(graph, variable.node().device());
    const auto factor = factors.find(variable.name());
    const auto rows = gradients.rows.find(variable);
    const Update update = {
        variable,
        MakeSlots(rule_, variable),
        gradient,
        factor == factors.end() ? context.learning_rate
                                : context.learning_rate * factor->second,
        context.update_number,
        rows == gradients.rows.end() ? Output() : rows->second,
        DecayOf(variable)};
    operations.push_back(BuildUpdate(context.condition, rule_, update));
    if (average_decay_) {
      operations.push_back(
          MoveAverage(context, variable, operations.back(), *average_decay_));
    }
  }
  operations.push_back(AssignAdd(step, 1));
  if (of_several) operations.push_back(AssignAdd(runs, 1));
  graph.AddLoss(loss.tensor());
  return Group(graph, operations);
}

}  // namespace sluice
