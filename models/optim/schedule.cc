#include "models/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "graph/ops/elementwise.h"
#include "graph/traversal.h"
#include "io/files/crc32c.h"
#include "models/optim/hyperparameters.h"
#include "models/optim/root_scalar.h"

namespace sluice {
namespace {

constexpr RootScalar kFactor = {"learning_rate_factor", DType::kFloat64,
                                "what learning rates are multiplied by"};
constexpr RootScalar kShift = {"learning_rate_shift", DType::kInt64,
                               "what schedules are ahead by"};

Output Float64(const Output& step, double value) {
  return step.graph().Constant(value, DType::kFloat64);
}

Output AsDouble(const Output& step) {
  return Cast(step, DType::kFloat64);
}

// min(step / steps, 1).
Output Progress(const Output& step, int64_t steps) {
  return Minimum(AsDouble(step) / static_cast<double>(steps), 1);
}

void Require(bool holds, std::string_view schedule, std::string_view wanted) {
  if (holds) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("learning rate: {}: wanted {}", schedule, wanted));
}

// "piecewise(1 until 10, 0.1 until 20, 0.01)"; of many the first ones, and a
// checksum by which others differ.
std::string DescribePieces(const std::vector<int64_t>& boundaries,
                           const std::vector<double>& values) {
  constexpr size_t kMost = 160;
  std::string pieces;
  for (size_t i = 0; i < boundaries.size(); ++i) {
    pieces += fmt::format("{} until {}, ", values[i], boundaries[i]);
  }
  pieces += fmt::format("{}", values.back());
  if (pieces.size() > kMost) {
    pieces = fmt::format("{}, ... {} values, {:08x}",
                         pieces.substr(0, pieces.rfind(", ", kMost)),
                         values.size(), Crc32c(pieces));
  }
  return fmt::format("piecewise({})", pieces);
}

}  // namespace

LearningRate::LearningRate(double constant)
    : description_(fmt::format("{}", constant)),
      build_(
          [constant](const Output& step) { return Float64(step, constant); }) {
  Require(IsFactor(constant), description_,
          "a finite number that is not negative");
}

Output LearningRate::At(const Output& step) const {
  return Cast(build_(step), DType::kFloat32);
}

Output LearningRateFactor(const Graph& graph) {
  return FindRootScalar(graph, kFactor);
}

Output LearningRateShift(const Graph& graph) {
  return FindRootScalar(graph, kShift);
}

namespace schedules {

LearningRate Piecewise(const std::vector<int64_t>& boundaries,
                       const std::vector<double>& values) {
  const std::string name = fmt::format("piecewise({} values)", values.size());
  Require(
      values.size() == boundaries.size() + 1, name,
      fmt::format("one value more than the {} boundaries", boundaries.size()));
  Require(std::is_sorted(boundaries.begin(), boundaries.end()), name,
          "boundaries that grow");
  Require(std::all_of(values.begin(), values.end(), IsFactor), name,
          "finite rates that are not negative");
  return {DescribePieces(boundaries, values), [=](const Output& step) {
            Output rate = Float64(step, values.back());
            for (size_t i = boundaries.size(); i-- > 0;) {
              rate = Select(Less(step, boundaries[i]), Float64(step, values[i]),
                            rate);
            }
            return rate;
          }};
}

LearningRate StepDecay(double rate, double factor, int64_t every) {
  const std::string name =
      fmt::format("step_decay({} * {} every {} steps)", rate, factor, every);
  Require(IsFactor(rate) && std::isfinite(factor) && factor > 0 && every > 0,
          name, "a rate, a positive factor and a positive number of steps");
  return {name, [=](const Output& step) {
            const Output times =
                Floor(AsDouble(step) / static_cast<double>(every));
            return rate * Pow(Float64(step, factor), times);
          }};
}

LearningRate WarmUp(int64_t steps, const LearningRate& then, double start) {
  const std::string name = fmt::format("warm_up({} over {} steps, then {})",
                                       start, steps, then.description());
  Require(IsFactor(start) && steps > 0, name,
          "a rate and a positive number of steps");
  return {name, [=](const Output& step) {
            const Output end =
                then.At64(step.graph().Constant(steps, DType::kInt64));
            const Output warm = start + (end - start) * Progress(step, steps);
            return Select(Less(step, steps), warm, then.At64(step));
          }};
}

LearningRate Cosine(double rate, int64_t steps, double final_rate) {
  const std::string name =
      fmt::format("cosine({} to {} over {} steps)", rate, final_rate, steps);
  Require(IsFactor(rate) && IsFactor(final_rate) && steps > 0, name,
          "finite rates that are not negative and a positive number of steps");
  return {name, [=](const Output& step) {
            const Output wave =
                Cos(std::numbers::pi * Progress(step, steps)) + 1;
            return final_rate + (0.5 * (rate - final_rate)) * wave;
          }};
}

LearningRate Polynomial(double rate, int64_t steps, double final_rate,
                        double power) {
  const std::string name =
      fmt::format("polynomial({} to {} over {} steps, power {})", rate,
                  final_rate, steps, power);
  Require(IsFactor(rate) && IsFactor(final_rate) && steps > 0 && power > 0,
          name,
          "finite rates that are not negative, a positive number of steps and "
          "a positive power");
  return {name, [=](const Output& step) {
            const Output left = 1 - Progress(step, steps);
            return final_rate + (rate - final_rate) * Pow(left, power);
          }};
}

LearningRate Scaled(const LearningRate& rate, double factor) {
  const std::string name = fmt::format("{} * {}", factor, rate.description());
  Require(IsFinite(factor), name, "a finite factor");
  return {name, [rate, factor](const Output& step) {
            return rate.At64(step) * factor;
          }};
}

LearningRate Plateau(const LearningRate& rate) {
  return {fmt::format("plateau({})", rate.description()),
          [rate](const Output& step) {
            const Output given = rate.At64(step);
            const Output factor = FindOrMakeRootScalar(
                step.graph(), kFactor, Ones({}, DType::kFloat64));
            const bool has = Needed({&given.node()}).contains(&factor.node());
            return has ? given : given * factor;
          }};
}

LearningRate Shifted(const LearningRate& rate) {
  return {
      rate.description(), [rate](const Output& step) {
        return rate.At64(step + FindOrMakeRootScalar(step.graph(), kShift,
                                                     Zeros({}, DType::kInt64)));
      }};
}

}  // namespace schedules

bool IsLearningRateFactor(std::string_view name) {
  return name == kFactor.name;
}

bool IsLearningRateShift(std::string_view name) {
  return name == kShift.name;
}

}  // namespace sluice
