// What a training is by beside its variables and its input: who goes on from a
// checkpoint must be by the same. Internal to models/train/run.
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
  // Whether that goes by the number of workers, which may be another.
  bool batch_by_workers = false;

  // Puts them into a state, and how many examples its steps were of.
  void Save(int64_t examples, TrainingState* state) const;
  // Throws Error(kInvalidArgument) that names what is different, kDataLoss
  // where what it says of them is no number. `source` is where the checkpoint
  // is from.
  void Check(const Checkpoint& checkpoint, const std::string& source) const;
  // How many examples the steps of a state were of that has passed Check. One
  // that does not say so is taken to have had batches of batch_size.
  int64_t ExamplesOf(const TrainingState& state) const;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_TRAINING_TERMS_H_
