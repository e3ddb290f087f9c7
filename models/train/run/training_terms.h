// The terms of a training beside its variables and its input, which must be the
// same to go on from a checkpoint. Internal to models/train/run.
#ifndef SLUICE_MODELS_TRAIN_RUN_TRAINING_TERMS_H_
#define SLUICE_MODELS_TRAIN_RUN_TRAINING_TERMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"

namespace sluice {

struct TrainingTerms {
  uint64_t seed = 0;
  std::vector<std::string> class_names;
  int64_t virtual_workers = 0;
  int64_t accumulates = 1;  // Optimizer::accumulates
  int64_t batch_size = 0;   // examples in a step
  // Whether the batch size is proportional to the number of workers, so that it
  // may be another.
  bool batch_by_workers = false;

  // Saves the terms, and how many examples its steps had, in a state.
  void Save(int64_t examples, TrainingState* state) const;
  // Throws Error: kInvalidArgument naming a term that differs from the
  // checkpoint's, kDataLoss if one there is no number. `source` says where the
  // checkpoint is from.
  void Check(const Checkpoint& checkpoint, const std::string& source) const;
  // How many examples the steps of a state had, which must have passed Check.
  // If it does not say, its batches are taken to have had batch_size examples.
  int64_t ExamplesOf(const TrainingState& state) const;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_TRAINING_TERMS_H_
