#include "graph/ops/optimizer.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "engine/semantics/optimizer.h"
#include "graph/ops/tables.h"
#include "graph/traversal.h"

namespace sluice {
namespace {

// Last operand of all: false leaves the variables as they are.
constexpr ArgDef kApply = {.name = "apply", .type = "bool", .optional = true};

// Where the gradient is among the operands of an op of one variable.
constexpr int GradientInput(const OpDef& op) {
  return op.inputs.size() - 2;
}

// Where a gradient's rows are among the operands of an op of some rows.
constexpr int RowsInput(const OpDef& op) {
  return op.inputs.size() - 2;
}

// The variables first, then scalars of the schedule, the gradient and `apply`.
Status ApplyShape(InferContext& c) {
  const OpDef& op = c.node().op();
  for (int i = 1; i < c.num_inputs(); ++i) {
    const bool scalar = i >= op.mutates && i != GradientInput(op);
    const Shape wanted = scalar ? Shape() : c.input(0);
    if (!Compatible(wanted, c.input(i))) {
      return InvalidArgument(
          fmt::format("'{}' has shape {}, wanted {}", op.inputs[i].name,
                      c.input(i).ToString(), wanted.ToString()));
    }
  }
  c.SetOutput(0, c.input(0));
  return {};
}

template <typename T, int N>
constexpr FixedList<T, N> WithLast(const FixedList<T, N>& list, const T& last) {
  T items[N] = {};
  int n = 0;
  for (const T& item : list) items[n++] = item;
  items[n++] = last;
  return {items, n};
}

constexpr ProbeInput kSkip = {.values = {0}};

// An optimizer whose first `variables` inputs are updated in place by `rule`.
constexpr OpDef ApplyOp(const char* rule, const char* name,
                        const char* list_name, const char* doc, int variables,
                        FixedList<ArgDef, 8> inputs,
                        FixedList<AttrDef, 10> attrs, Probe probe) {
  Probe skipped = probe;
  skipped.inputs = WithLast(probe.inputs, kSkip);
  return {.name = name,
          .doc = doc,
          .inputs = WithLast(inputs, kApply),
          .types = {{"T", kFloatDouble}},
          .attrs = attrs,
          .shape = ApplyShape,
          .gradient = NotDifferentiable,
          .stateful = true,
          .mutates = variables,
          .list_op = list_name,
          .rule = rule,
          .probes = {probe, skipped}};
}

constexpr ArgDef kLearningRate = {"learning_rate", "float32"};
constexpr ArgDef kStep = {"step", "int64"};

constexpr ProbeInput kTensor = {.shape = {3, 5}};
constexpr ProbeInput kSquares = {.shape = {3, 5}, .lo = 0.5, .hi = 2};
constexpr ProbeInput kRate = {.values = {0.1}};
constexpr ProbeInput kStepCount = {.values = {3}};

constexpr OpDef kOptimizerOps[] = {
    ApplyOp("Sgd", "ApplySgd", "ApplySgdList",
            "variable -= learning_rate * gradient.", 1,
            {{"variable"}, kLearningRate, {"gradient"}}, {},
            {.inputs = {kTensor, kRate, kTensor}}),
    ApplyOp("Momentum", "ApplyMomentum", "ApplyMomentumList",
            "Gradient descent with momentum.", 2,
            {{"variable"}, {"velocity"}, kLearningRate, {"gradient"}},
            {{"momentum", 0.9}, {"nesterov", false}},
            {.inputs = {kTensor, kTensor, kRate, kTensor}}),
    ApplyOp("RmsProp", "ApplyRmsProp", "ApplyRmsPropList",
            "The gradient over its root mean square.", 2,
            {{"variable"}, {"mean_square"}, kLearningRate, {"gradient"}},
            {{"decay", 0.9}, {"epsilon", 1e-8}},
            {.inputs = {kTensor, kSquares, kRate, kTensor}}),
    ApplyOp("RmsPropMomentum", "ApplyRmsPropMomentum",
            "ApplyRmsPropMomentumList", "ApplyRmsProp with momentum.", 3,
            {{"variable"},
             {"mean_square"},
             {"velocity"},
             kLearningRate,
             {"gradient"}},
            {{"decay", 0.9}, {"momentum", 0.9}, {"epsilon", 1e-8}},
            {.inputs = {kTensor, kSquares, kTensor, kRate, kTensor}}),
    ApplyOp("Adagrad", "ApplyAdagrad", "ApplyAdagradList",
            "The gradient over the root of its sum of squares.", 2,
            {{"variable"}, {"accumulator"}, kLearningRate, {"gradient"}},
            {{"epsilon", 1e-10}},
            {.inputs = {kTensor, kSquares, kRate, kTensor}}),
    ApplyOp(
        "Adam", "ApplyAdam", "ApplyAdamList",
        "Adam (Kingma and Ba, 2015), bias corrected.", 3,
        {{"variable"}, {"m"}, {"v"}, kLearningRate, kStep, {"gradient"}},
        {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}},
        {.inputs = {kTensor, kTensor, kSquares, kRate, kStepCount, kTensor}}),
    ApplyOp(
        "AdamW", "ApplyAdamW", "ApplyAdamWList",
        "Adam with decoupled weight decay.", 3,
        {{"variable"}, {"m"}, {"v"}, kLearningRate, kStep, {"gradient"}},
        {{"beta1", 0.9},
         {"beta2", 0.999},
         {"epsilon", 1e-8},
         {"weight_decay", 0.01}},
        {.inputs = {kTensor, kTensor, kSquares, kRate, kStepCount, kTensor}}),
};

// --- Lists of variables ------------------------------------------------------

// The tensors by kind: all variables, all first slots, ..., all gradients, of
// which each may be half; then the scalars, what the gradients are multiplied
// by first (1 changes nothing) and `apply`, which is not optional here.
Status ApplyListShape(InferContext& c) {
  const OpDef& op = c.node().op();
  const int64_t variables = c.attrs().Int("variables");
  const int kinds = op.mutates + 1;
  const int tensors = c.num_inputs() - (op.inputs.size() - 1);
  if (variables < 1 || variables > tensors || tensors != variables * kinds) {
    return InvalidArgument(
        fmt::format("{} variables want {} tensors each, got {} in all",
                    variables, kinds, tensors));
  }
  const int64_t decayed = c.attrs().Int("decayed");
  if (decayed < 0 || decayed > variables) {
    return InvalidArgument(
        fmt::format("decayed must lie in [0, {}], got {}", variables, decayed));
  }
  for (int i = 0; i < tensors - variables; ++i) {
    if (c.type(i).dtype != c.type(0).dtype) {
      return InvalidArgument(fmt::format("input {} is {}, another variable {}",
                                         i, NameOf(c.type(i).dtype),
                                         NameOf(c.type(0).dtype)));
    }
  }
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Shape wanted =
        i < tensors ? c.input(i % static_cast<int>(variables)) : Shape();
    if (!Compatible(wanted, c.input(i))) {
      return InvalidArgument(fmt::format("input {} has shape {}, wanted {}", i,
                                         c.input(i).ToString(),
                                         wanted.ToString()));
    }
  }
  c.SetOutput(0, c.input(0));
  return {};
}

// The same for two variables of different shapes, the second gradient half.
constexpr Probe ListProbe(const OpDef& one) {
  const Probe& probe = one.probes[0];
  const int gradient = GradientInput(one);
  ProbeInput inputs[12] = {};
  int n = 0;
  for (int i = 0; i <= gradient; ++i) {
    if (i >= one.mutates && i < gradient) continue;
    inputs[n++] = probe.inputs[i];
    inputs[n] = probe.inputs[i];
    inputs[n].half = i == gradient;
    inputs[n++].shape = {7};
  }
  for (int i = one.mutates; i < gradient; ++i) inputs[n++] = probe.inputs[i];
  inputs[n++] = {.values = {0.3}};
  inputs[n++] = {.values = {1}};
  Probe list = {
      .attrs = {{"variables", 2}, {"gradient_decay", 0.25}, {"decayed", 1}}};
  list.inputs = FixedList<ProbeInput, 12>(inputs, n);
  return list;
}

// What `one` does, for a list of variables, in one node. Gradients, brought to
// the variables' dtype, are taken times gradient_scale; to those of the first
// `decayed` variables, gradient_decay times the variable is added then.
constexpr OpDef ListOp(const OpDef& one) {
  ArgDef inputs[8] = {{.name = "tensors", .type = kTOrHalf, .variadic = true}};
  int n = 1;
  for (int i = one.mutates; i < GradientInput(one); ++i) {
    inputs[n++] = one.inputs[i];
  }
  inputs[n++] = {"gradient_scale", "float32"};
  inputs[n++] = {kApply.name, kApply.type};
  AttrDef attrs[10] = {
      {"variables", AttrType::kInt}, {"gradient_decay", 0.0}, {"decayed", 0}};
  int m = 3;
  for (const AttrDef& attr : one.attrs) attrs[m++] = attr;
  OpDef op = one;
  op.name = one.list_op;
  op.made_by = MadeBy::kEngine;
  op.doc =
      "The same for a list of variables, gradient scale and decay included.";
  op.inputs = FixedList<ArgDef, 8>(inputs, n);
  op.attrs = FixedList<AttrDef, 10>(attrs, m);
  op.shape = ApplyListShape;
  op.mutates_attr = "variables";
  op.list_op = nullptr;
  op.probes = {ListProbe(one)};
  return op;
}

// --- Rows of a variable ------------------------------------------------------

constexpr ArgDef kRows = {"rows", "I"};

// As for whole variables, but for the gradient, [rows..., a row...].
Status ApplyRowsShape(InferContext& c) {
  const OpDef& op = c.node().op();
  const Shape& variable = c.input(0);
  const int gradient = RowsInput(op) - 1;
  if (variable.rank() < 1) return InvalidArgument("the variable has no rows");
  Shape slices = c.input(RowsInput(op));
  if (slices.rank() + variable.rank() - 1 > Shape::kMaxRank) {
    return InvalidArgument(
        fmt::format("a tensor has at most {} dimensions", Shape::kMaxRank));
  }
  for (int i = 1; i < variable.rank(); ++i) slices.push_back(variable[i]);
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (i == RowsInput(op)) continue;
    const Shape wanted = i < op.mutates  ? variable
                         : i == gradient ? slices
                                         : Shape();
    if (!Compatible(wanted, c.input(i))) {
      return InvalidArgument(
          fmt::format("'{}' has shape {}, wanted {}", op.inputs[i].name,
                      c.input(i).ToString(), wanted.ToString()));
    }
  }
  c.SetOutput(0, variable);
  return {};
}

// Of slices those whose rows are counted alike: the others' rows are none
// (PadRows).
bool ReadsSlices(const Node& node, int input) {
  const int rows = RowsInput(node.op());
  const Node& padded = node.input(rows).node();
  return input == rows - 1 && padded.op().reads_counted != nullptr &&
         CounterOf(padded.input(0)) == CounterOf(node.input(input));
}

// Four slices of three rows: two of one row, and one of none.
constexpr Probe RowsProbe(const OpDef& one, const Probe& probe) {
  const int gradient = GradientInput(one);
  ProbeInput inputs[12] = {};
  int n = 0;
  for (const ProbeInput& input : probe.inputs) {
    inputs[n++] = input;
    if (n != gradient + 1) continue;
    inputs[gradient].shape = {2, 2, 5};
    inputs[n++] = {.shape = {2, 2}, .values = {2, 0, -1, 2}};
  }
  Probe of_rows = probe;
  of_rows.inputs = FixedList<ProbeInput, 12>(inputs, n);
  return of_rows;
}

// What `one` does, for the rows of the variable that the slices of its gradient
// belong to, once for each; their sum is a row's gradient.
constexpr OpDef RowsOp(const OpDef& one, const char* name) {
  ArgDef inputs[8] = {};
  int n = 0;
  for (const ArgDef& input : one.inputs) {
    inputs[n++] = input;
    if (n == GradientInput(one) + 1) inputs[n++] = kRows;
  }
  OpDef op = one;
  op.name = name;
  op.builder = one.name;
  op.doc =
      "The same for some rows: slices of one row are added up, those of row -1 "
      "left out.";
  op.inputs = FixedList<ArgDef, 8>(inputs, n);
  op.types = {{"T", kFloatDouble}, {"I", kIndex}};
  op.shape = ApplyRowsShape;
  op.scatters = true;
  op.reads_counted = ReadsSlices;
  op.list_op = nullptr;
  op.probes = {RowsProbe(one, one.probes[0]), RowsProbe(one, one.probes[1])};
  return op;
}

constexpr const char* kRowsNames[] = {
    "ApplySgdRows",     "ApplyMomentumRows",
    "ApplyRmsPropRows", "ApplyRmsPropMomentumRows",
    "ApplyAdagradRows", "ApplyAdamRows",
    "ApplyAdamWRows"};

template <size_t n>
constexpr std::array<OpDef, 3 * n> WithOthers(const OpDef (&ones)[n],
                                              const char* const (&rows)[n]) {
  std::array<OpDef, 3 * n> all = {};
  for (size_t i = 0; i < n; ++i) {
    all[i] = ones[i];
    all[n + i] = ListOp(ones[i]);
    all[2 * n + i] = RowsOp(ones[i], rows[i]);
  }
  return all;
}

constexpr auto kAllOptimizerOps = WithOthers(kOptimizerOps, kRowsNames);

// A learning rate given as a number becomes a float32 constant.
Operand Rate(Graph& graph, const Operand& rate) {
  if (!rate.is_number()) return rate;
  return {graph.Constant(rate.number(), DType::kFloat32, rate.location()),
          rate.location()};
}

// With rows, those of the gradient, the op that takes them.
Output Apply(std::string op, std::vector<Operand> inputs, const Output& rows,
             Attributes attrs = {}) {
  Graph& graph = inputs[0].graph();
  if (rows.valid()) {
    op += optimizer::kRowsSuffix;
    inputs.emplace_back(rows, inputs.back().location());
  }
  return graph.Add({std::move(op), std::move(inputs), std::move(attrs)})
      .output(0);
}

}  // namespace

std::span<const OpDef> OptimizerOps() {
  return kAllOptimizerOps;
}

Output ApplySgd(Operand variable, Operand learning_rate, Operand gradient,
                const Output& rows) {
  return Apply("ApplySgd",
               {variable, Rate(variable.graph(), learning_rate), gradient},
               rows);
}

Output ApplyMomentum(Operand variable, Operand velocity, Operand learning_rate,
                     Operand gradient, const MomentumRule& rule,
                     const Output& rows) {
  return Apply(
      "ApplyMomentum",
      {variable, velocity, Rate(variable.graph(), learning_rate), gradient},
      rows, {{"momentum", rule.momentum}, {"nesterov", rule.nesterov}});
}

Output ApplyRmsProp(Operand variable, Operand mean_square,
                    Operand learning_rate, Operand gradient,
                    const RmsPropRule& rule, const Output& rows) {
  return Apply(
      "ApplyRmsProp",
      {variable, mean_square, Rate(variable.graph(), learning_rate), gradient},
      rows, {{"decay", rule.decay}, {"epsilon", rule.epsilon}});
}

Output ApplyRmsPropMomentum(Operand variable, Operand mean_square,
                            Operand velocity, Operand learning_rate,
                            Operand gradient, double momentum,
                            const RmsPropRule& rule, const Output& rows) {
  return Apply("ApplyRmsPropMomentum",
               {variable, mean_square, velocity,
                Rate(variable.graph(), learning_rate), gradient},
               rows,
               {{"decay", rule.decay},
                {"momentum", momentum},
                {"epsilon", rule.epsilon}});
}

Output ApplyAdagrad(Operand variable, Operand accumulator,
                    Operand learning_rate, Operand gradient,
                    const AdagradRule& rule, const Output& rows) {
  return Apply(
      "ApplyAdagrad",
      {variable, accumulator, Rate(variable.graph(), learning_rate), gradient},
      rows, {{"epsilon", rule.epsilon}});
}

Output ApplyAdam(Operand variable, Operand m, Operand v, Operand learning_rate,
                 Operand step, Operand gradient, const AdamRule& rule,
                 const Output& rows) {
  return Apply(
      "ApplyAdam",
      {variable, m, v, Rate(variable.graph(), learning_rate), step, gradient},
      rows,
      {{"beta1", rule.beta1},
       {"beta2", rule.beta2},
       {"epsilon", rule.epsilon}});
}

Output ApplyAdamW(Operand variable, Operand m, Operand v, Operand learning_rate,
                  Operand step, Operand gradient, const AdamWRule& rule,
                  const Output& rows) {
  return Apply(
      "ApplyAdamW",
      {variable, m, v, Rate(variable.graph(), learning_rate), step, gradient},
      rows,
      {{"beta1", rule.beta1},
       {"beta2", rule.beta2},
       {"epsilon", rule.epsilon},
       {"weight_decay", rule.weight_decay}});
}

}  // namespace sluice
