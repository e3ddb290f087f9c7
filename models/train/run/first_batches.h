// Specs that see little of their data: to try a program out, and to find out
// whether a model can learn anything at all.
#ifndef SLUICE_MODELS_TRAIN_RUN_FIRST_BATCHES_H_
#define SLUICE_MODELS_TRAIN_RUN_FIRST_BATCHES_H_

#include <cstdint>

#include "engine/visibility.h"
#include "models/train/run/model_spec.h"

namespace SLUICE_PUBLIC sluice {

// Both throw Error(kInvalidArgument) unless batches > 0. The input functions
// they make read these batches when they are called, and keep them in memory;
// examples that `run.bad_examples` lets pass are passed over in that reading.

// The spec that trains on the first batches of its training input again and
// again, and is evaluated on them ("training" in reports); what it predicts for
// stays. Every pass has the very same examples, with the random augmentation of
// the first, so a model that cannot get their loss down has a fault. They are
// at most those of one pass over the data, and an epoch is one pass over them.
// A training can be resumed anywhere, with the same number of batches alone.
TrainerSpec OverfitBatches(const TrainerSpec& spec, int64_t batches);

// The spec whose evaluations and predictions end after the first batches. What
// it trains on stays.
TrainerSpec FirstBatches(const TrainerSpec& spec, int64_t batches);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_FIRST_BATCHES_H_
