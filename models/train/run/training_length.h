// How long a training is, by its run and its input, and what optimizer it then
// has: all that can be asked before its model is built. Internal to models.
#ifndef SLUICE_MODELS_TRAIN_RUN_TRAINING_LENGTH_H_
#define SLUICE_MODELS_TRAIN_RUN_TRAINING_LENGTH_H_

#include <cstdint>

#include "engine/visibility.h"
#include "models/train/run/model_spec.h"
#include "models/train/run/training_options.h"

namespace SLUICE_INTERNAL sluice {

// Completes `run` by `input`, which the input function of `spec` has made for
// it with batches for `steps_at_once` steps: the batch size of a step, what an
// epoch is, and the epochs that a given number of steps are. Throws
// Error(kInvalidArgument) if they do not fit together, or nothing says when
// such a training ends.
void ReckonLength(const TrainerSpec& spec, const Dataset& input,
                  int64_t steps_at_once, RunContext* run);

// The optimizer of a training of that length, with what its options ask for.
// Throws what the optimizer function of `spec` throws.
Optimizer OptimizerFor(const TrainerSpec& spec, const RunContext& run,
                       const TrainingOptions& options);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_TRAINING_LENGTH_H_
