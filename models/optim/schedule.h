// Learning rates: graph, as functions of the global step, or of several
// trainings in a graph each of the number of its own runs.
#ifndef SLUICE_MODELS_OPTIM_SCHEDULE_H_
#define SLUICE_MODELS_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "models/run_context.h"

namespace SLUICE_PUBLIC sluice {

// A number or a schedule. Immutable; holds no graph, so it can be built into
// several.
class LearningRate {
 public:
  // From the steps completed, an int64 scalar, to the rate of the next one, a
  // float64 scalar.
  using Build = std::function<Output(const Output& step)>;

  LearningRate(double constant);  // NOLINT: implicit
  LearningRate(std::string description, Build build)
      : description_(std::move(description)), build_(std::move(build)) {}

  // The rate as a float32 scalar of step's graph.
  Output At(const Output& step) const;
  // The rate as a float64 scalar, for schedules made of schedules.
  Output At64(const Output& step) const { return build_(step); }
  // "0.1", "5:0.1->0.4,15:0.4", "cosine(0.1 to 0 over 3000 steps)"
  const std::string& description() const { return description_; }

 private:
  std::string description_;
  Build build_;
};

// A schedule written in epochs:
//
//   schedule := rate | segment { "," segment }
//   segment  := epoch ":" rate [ ("->" | "=>") rate ]
//
// "E:a->b" goes linearly, "E:a=>b" exponentially, from a at the end of the
// segment before (epoch 0 for the first) to b at epoch E; "E:a" is a until
// epoch E. After the last segment its last rate remains. Epochs are positive,
// grow, and may be fractions; rates are not negative, and with "=>" positive.
// So "5:0.1->0.4,15:0.4,20:0.04" is 0.1 rising to 0.4 at epoch 5, 0.4 until
// epoch 15, then 0.04.
//
// Throws Error(kInvalidArgument) that says at which character what was wanted.
LearningRate Schedule(std::string_view text, double steps_per_epoch);
// The schedule of `text` with run.steps_per_epoch. If the length of an epoch is
// not known (RunContext::knows_epochs), only a constant rate is allowed.
LearningRate Schedule(std::string_view text, const RunContext& run);

// Schedules in steps. All throw Error(kInvalidArgument) for arguments that
// make no sense.
namespace schedules {

// values[i] until step boundaries[i]; then the last value, of which there is
// one more than of boundaries.
LearningRate Piecewise(const std::vector<int64_t>& boundaries,
                       const std::vector<double>& values);
// rate, multiplied by `factor` after every `every` steps.
LearningRate StepDecay(double rate, double factor, int64_t every);
// Linear from `start` to what `then` has at step `steps`; `then` from there.
LearningRate WarmUp(int64_t steps, const LearningRate& then, double start = 0);
// From rate to final_rate along half a cosine over `steps` (Loshchilov and
// Hutter, "SGDR", 2017); final_rate from there.
LearningRate Cosine(double rate, int64_t steps, double final_rate = 0);
// final_rate + (rate - final_rate) * (1 - step / steps)^power; final_rate
// from there.
LearningRate Polynomial(double rate, int64_t steps, double final_rate = 0,
                        double power = 1);
// rate times a number; below 0 the loss is climbed.
LearningRate Scaled(const LearningRate& rate, double factor);
// rate times the graph's LearningRateFactor, which it makes, 1 at first; a rate
// that is of that factor already stays as it is.
// Training goes on with the factor that it had reached, since that is a
// variable; ReduceOnPlateau (models/train/hooks/plateau.h) lowers it.
LearningRate Plateau(const LearningRate& rate);
// rate at as many steps later as the graph's LearningRateShift says, which it
// makes, 0 at first.
LearningRate Shifted(const LearningRate& rate);

}  // namespace schedules

// The non-trainable float64 scalar variable "learning_rate_factor" of a graph;
// not valid() where schedules::Plateau was not built in it. Throws
// Error(kInvalidArgument) where something else has that name.
Output LearningRateFactor(const Graph& graph);
bool IsLearningRateFactor(std::string_view name);
// The int64 scalar variable "learning_rate_shift" of schedules::Shifted, found
// as LearningRateFactor is.
Output LearningRateShift(const Graph& graph);
bool IsLearningRateShift(std::string_view name);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_SCHEDULE_H_
