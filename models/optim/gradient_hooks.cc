#include "models/optim/gradient_hooks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "graph/ops/elementwise.h"
#include "graph/ops/shape.h"
#include "graph/ops/state.h"
#include "models/optim/beside.h"
#include "models/optim/hyperparameters.h"
#include "models/optim/squared_norm.h"

namespace sluice {
namespace {

// And of further trainings of a variable with "_1" and so on behind it.
constexpr std::string_view kGradientSum = "gradient_sum";

void Require(bool holds, const char* hook, double got, const char* wanted) {
  if (holds) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: wanted {}, got {}", hook, wanted, got));
}

// min(max_norm / norm, 1), float64, without a division by 0; an infinite
// max_norm is the largest number, which clips nothing. A norm of NaN stays
// visible.
Output ClipFactor(const Output& squared_norm, double max_norm) {
  const double most = std::min(max_norm, std::numeric_limits<double>::max());
  return most / Maximum(Sqrt(squared_norm), most);
}

Output Scale(const Output& gradient, const Output& factor) {
  return gradient * Cast(factor, gradient.dtype());
}

}  // namespace

bool IsBiasOrNorm(const std::string& name) {
  const std::string last = name.substr(name.rfind('/') + 1);
  return last == "bias" || last == "scale" || last == "offset";
}

namespace gradients {

GradientHook ClipByGlobalNorm(double max_norm) {
  Require(max_norm > 0, "ClipByGlobalNorm", max_norm, "a positive norm");
  return SlicesHook{
      [=](MinimizeContext& context, std::vector<GradientAndVariable>& pairs) {
        NameScope names(context.graph, "clip_by_global_norm");
        std::vector<Output> squares;
        for (const auto& pair : pairs) {
          squares.push_back(SquaredNorm(pair.gradient, pair.variable));
        }
        const Output factor = ClipFactor(AddN(squares), max_norm);
        for (auto& pair : pairs) pair.gradient = Scale(pair.gradient, factor);
      }};
}

GradientHook ClipByNorm(double max_norm) {
  Require(max_norm > 0, "ClipByNorm", max_norm, "a positive norm");
  return SlicesHook{
      [=](MinimizeContext& context, std::vector<GradientAndVariable>& pairs) {
        NameScope names(context.graph, "clip_by_norm");
        for (auto& pair : pairs) {
          const Output square = SquaredNorm(pair.gradient, pair.variable);
          pair.gradient = Scale(pair.gradient, ClipFactor(square, max_norm));
        }
      }};
}

GradientHook ClipByValue(double limit) {
  Require(limit > 0, "ClipByValue", limit, "a positive limit");
  return SlicesHook{
      [=](MinimizeContext& context, std::vector<GradientAndVariable>& pairs) {
        NameScope names(context.graph, "clip_by_value");
        for (auto& pair : pairs)
          pair.gradient = Clip(pair.gradient, -limit, limit);
      }};
}

GradientHook WeightDecay(double rate, NamePredicate exclude) {
  RequireFactor("WeightDecay", "rate", rate);
  return DecayHook{rate, std::move(exclude)};
}

GradientHook Accumulate(int64_t n) {
  Require(n >= 1, "Accumulate", static_cast<double>(n), "a positive number");
  return AccumulateHook{n};
}

}  // namespace gradients

void DecayHook::operator()(MinimizeContext& context,
                           std::vector<GradientAndVariable>& pairs) const {
  NameScope names(context.graph, "weight_decay");
  for (auto& pair : pairs) {
    const double of_it = Of(pair.variable);
    if (of_it == 0) continue;
    pair.gradient = pair.gradient + of_it * pair.variable;
  }
}

void AccumulateHook::operator()(MinimizeContext& context,
                                std::vector<GradientAndVariable>& pairs) const {
  if (n == 1) return;
  if (context.condition.valid()) {
    throw Error(Code::kInvalidArgument,
                "Accumulate: another gradient hook decides already when to "
                "update; use one of them");
  }
  NameScope names(context.graph, "accumulate");
  const Output run = context.global_step + 1;
  context.condition = Equal(Mod(run, n), 0);
  context.update_number = FloorDiv(run, n);
  for (auto& pair : pairs) {
    const Output& variable = pair.variable;
    DeviceScope device(context.graph, variable.node().device());
    Output sum;
    {
      NameScope of_variable(Scope(context.graph, variable.name()));
      sum = context.graph.Variable(NameBeside(context.graph, kGradientSum),
                                   Zeros(variable.shape(), variable.dtype()),
                                   BesideOptions(variable));
    }
    Output total = sum + pair.gradient;
    if (context.finite.valid()) total = Select(context.finite, total, sum);
    context.operations.push_back(
        Assign(sum, Select(context.condition, ZerosLike(total), total)));
    pair.gradient = total / static_cast<double>(n);
  }
  context.finite = Output();
}

bool IsAccumulatedGradient(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('/') + 1);
  if (last.size() == name.size() || !last.starts_with(kGradientSum)) {
    return false;
  }
  const std::string_view number = last.substr(kGradientSum.size());
  return number.empty() ||
         (number.size() > 1 && number[0] == '_' &&
          number.find_first_not_of("0123456789", 1) == number.npos);
}

}  // namespace sluice
