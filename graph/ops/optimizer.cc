#include "graph/ops/optimizer.h"

#include <fmt/format.h>

#include "graph/ops/tables.h"

namespace sluice {
namespace {

// The variables first, then scalars of the schedule, last the gradient.
Status ApplyShape(InferContext& c) {
  const OpDef& op = c.node().op();
  const int gradient = c.num_inputs() - 1;
  for (int i = 1; i < c.num_inputs(); ++i) {
    const bool scalar = i >= op.mutates && i < gradient;
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

// An optimizer whose first `variables` inputs are updated in place.
constexpr OpDef ApplyOp(const char* name, const char* doc, int variables,
                        FixedList<ArgDef, 8> inputs,
                        FixedList<AttrDef, 10> attrs, Probe probe) {
  return {.name = name,
          .doc = doc,
          .inputs = inputs,
          .types = {{"T", kFloatDouble}},
          .attrs = attrs,
          .shape = ApplyShape,
          .gradient = NotDifferentiable,
          .stateful = true,
          .mutates = variables,
          .probes = {probe}};
}

constexpr ArgDef kLearningRate = {"learning_rate", "float32"};
constexpr ArgDef kStep = {"step", "int64"};

constexpr ProbeInput kTensor = {.shape = {3, 5}};
constexpr ProbeInput kSquares = {.shape = {3, 5}, .lo = 0.5, .hi = 2};
constexpr ProbeInput kRate = {.values = {0.1}};
constexpr ProbeInput kCount = {.values = {3}};

constexpr OpDef kOptimizerOps[] = {
    ApplyOp("ApplySgd", "variable -= learning_rate * gradient.", 1,
            {{"variable"}, kLearningRate, {"gradient"}}, {},
            {.inputs = {kTensor, kRate, kTensor}}),
    ApplyOp("ApplyMomentum", "Gradient descent with momentum.", 2,
            {{"variable"}, {"velocity"}, kLearningRate, {"gradient"}},
            {{"momentum", 0.9}, {"nesterov", false}},
            {.inputs = {kTensor, kTensor, kRate, kTensor}}),
    ApplyOp("ApplyRmsProp", "The gradient over its root mean square.", 2,
            {{"variable"}, {"mean_square"}, kLearningRate, {"gradient"}},
            {{"decay", 0.9}, {"epsilon", 1e-8}},
            {.inputs = {kTensor, kSquares, kRate, kTensor}}),
    ApplyOp("ApplyRmsPropMomentum", "ApplyRmsProp with momentum.", 3,
            {{"variable"},
             {"mean_square"},
             {"velocity"},
             kLearningRate,
             {"gradient"}},
            {{"decay", 0.9}, {"momentum", 0.9}, {"epsilon", 1e-8}},
            {.inputs = {kTensor, kSquares, kTensor, kRate, kTensor}}),
    ApplyOp("ApplyAdagrad", "The gradient over the root of its sum of squares.",
            2, {{"variable"}, {"accumulator"}, kLearningRate, {"gradient"}},
            {{"epsilon", 1e-10}},
            {.inputs = {kTensor, kSquares, kRate, kTensor}}),
    ApplyOp("ApplyAdam", "Adam (Kingma and Ba, 2015), bias corrected.", 3,
            {{"variable"}, {"m"}, {"v"}, kLearningRate, kStep, {"gradient"}},
            {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}},
            {.inputs = {kTensor, kTensor, kSquares, kRate, kCount, kTensor}}),
    ApplyOp("ApplyAdamW", "Adam with decoupled weight decay.", 3,
            {{"variable"}, {"m"}, {"v"}, kLearningRate, kStep, {"gradient"}},
            {{"beta1", 0.9},
             {"beta2", 0.999},
             {"epsilon", 1e-8},
             {"weight_decay", 0.01}},
            {.inputs = {kTensor, kTensor, kSquares, kRate, kCount, kTensor}}),
};

// A learning rate given as a number becomes a float32 constant.
Operand Rate(Graph& graph, const Operand& rate) {
  if (!rate.is_number()) return rate;
  return {graph.Constant(rate.number(), DType::kFloat32, rate.location()),
          rate.location()};
}

Output Apply(const char* op, std::vector<Operand> inputs,
             Attributes attrs = {}) {
  Graph& graph = inputs[0].graph();
  return graph.Add({op, std::move(inputs), std::move(attrs)}).output(0);
}

}  // namespace

std::span<const OpDef> OptimizerOps() {
  return kOptimizerOps;
}

Output ApplySgd(Operand variable, Operand learning_rate, Operand gradient) {
  return Apply("ApplySgd",
               {variable, Rate(variable.graph(), learning_rate), gradient});
}

Output ApplyMomentum(Operand variable, Operand velocity, Operand learning_rate,
                     Operand gradient, const MomentumRule& rule) {
  return Apply(
      "ApplyMomentum",
      {variable, velocity, Rate(variable.graph(), learning_rate), gradient},
      {{"momentum", rule.momentum}, {"nesterov", rule.nesterov}});
}

Output ApplyRmsProp(Operand variable, Operand mean_square,
                    Operand learning_rate, Operand gradient,
                    const RmsPropRule& rule) {
  return Apply(
      "ApplyRmsProp",
      {variable, mean_square, Rate(variable.graph(), learning_rate), gradient},
      {{"decay", rule.decay}, {"epsilon", rule.epsilon}});
}

Output ApplyRmsPropMomentum(Operand variable, Operand mean_square,
                            Operand velocity, Operand learning_rate,
                            Operand gradient, double momentum,
                            const RmsPropRule& rule) {
  return Apply("ApplyRmsPropMomentum",
               {variable, mean_square, velocity,
                Rate(variable.graph(), learning_rate), gradient},
               {{"decay", rule.decay},
                {"momentum", momentum},
                {"epsilon", rule.epsilon}});
}

Output ApplyAdagrad(Operand variable, Operand accumulator,
                    Operand learning_rate, Operand gradient,
                    const AdagradRule& rule) {
  return Apply(
      "ApplyAdagrad",
      {variable, accumulator, Rate(variable.graph(), learning_rate), gradient},
      {{"epsilon", rule.epsilon}});
}

Output ApplyAdam(Operand variable, Operand m, Operand v, Operand learning_rate,
                 Operand step, Operand gradient, const AdamRule& rule) {
  return Apply(
      "ApplyAdam",
      {variable, m, v, Rate(variable.graph(), learning_rate), step, gradient},
      {{"beta1", rule.beta1},
       {"beta2", rule.beta2},
       {"epsilon", rule.epsilon}});
}

Output ApplyAdamW(Operand variable, Operand m, Operand v, Operand learning_rate,
                  Operand step, Operand gradient, const AdamWRule& rule) {
  return Apply(
      "ApplyAdamW",
      {variable, m, v, Rate(variable.graph(), learning_rate), step, gradient},
      {{"beta1", rule.beta1},
       {"beta2", rule.beta2},
       {"epsilon", rule.epsilon},
       {"weight_decay", rule.weight_decay}});
}

}  // namespace sluice
