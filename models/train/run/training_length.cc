#include "models/train/run/training_length.h"

#include <fmt/format.h>

#include <cmath>

#include "models/optim/schedule.h"

namespace sluice {
namespace {

// Of a step: of the batches that the input has, each of which is for as many
// steps. `run` has the size that the input function was asked for.
int64_t BatchSizeOf(const TrainerSpec& spec, const Dataset& input,
                    const RunContext& run, int64_t steps) {
  const int64_t size = input.batch_size(), asked = run.batch_size * steps;
  // Workers that have their own speeds take as many examples each.
  if (run.batch_size_given ? size == asked : size % steps == 0) {
    return size / steps;
  }
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: the input has batches of {}, the run's batch "
                          "size is {}; end the input with "
                          "Batch(run.batch_size)",
                          spec.name, size, asked));
}

// Where only its end tells how large the input is, all steps are taken for one
// epoch, or its end is that of an epoch.
double StepsPerEpoch(const Dataset& input, RunContext& run) {
  const int64_t examples = input.examples_per_epoch();
  if (examples >= 0) {
    return static_cast<double>(examples) / static_cast<double>(run.batch_size);
  }
  if (run.steps > 0) {
    run.epoch_is_all_steps = true;
    return static_cast<double>(run.steps);
  }
  const bool ends = input.cardinality() == kUnknownCardinality;
  if (ends && run.epochs == std::floor(run.epochs)) {
    return RunContext::kEpochsEndWithInput;
  }
  throw Error(Code::kInvalidArgument,
              "how many examples the input has, or how many batches "
              "BucketByLength makes of them, is not known before they are "
              "read: give the number of steps (--steps), where there are no "
              "buckets that of examples with Dataset::ExpectSize, or a whole "
              "number of epochs and an input that ends with each of them, "
              "without Repeat");
}

}  // namespace

void ReckonLength(const TrainerSpec& spec, const Dataset& input,
                  int64_t steps_at_once, RunContext* run) {
  if (run->batch_size < 1 || !(run->epochs >= 0)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("wanted a positive batch size and epochs that are "
                            "not negative, got {} and {}",
                            run->batch_size, run->epochs));
  }
  run->batch_size = BatchSizeOf(spec, input, *run, steps_at_once);
  run->steps_per_epoch = StepsPerEpoch(input, *run);
  if (run->steps > 0) {
    run->epochs = static_cast<double>(run->steps) / run->steps_per_epoch;
  }
}

Optimizer OptimizerFor(const TrainerSpec& spec, const RunContext& run,
                       const TrainingOptions& options) {
  Optimizer optimizer =
      spec.optimizer ? spec.optimizer(run) : optimizers::Adam();
  const bool half = options.session.precision == Precision::kFloat16;
  if (half && !optimizer.scales_loss()) {
    optimizer = optimizer.WithLossScaling();
  }
  if (options.batch_by_workers) {
    optimizer = optimizer.WithLearningRate(
        schedules::Shifted(optimizer.learning_rate()));
  }
  return options.recompute == Recompute::kNone
             ? optimizer
             : optimizer.WithRecompute(options.recompute);
}

}  // namespace sluice
