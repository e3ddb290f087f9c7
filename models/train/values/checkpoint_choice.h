// Chooses the checkpoint of a training that is used for anything but training.
#ifndef SLUICE_MODELS_TRAIN_VALUES_CHECKPOINT_CHOICE_H_
#define SLUICE_MODELS_TRAIN_VALUES_CHECKPOINT_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/visibility.h"
#include "io/checkpoints/checkpoint.h"

namespace SLUICE_PUBLIC sluice {

struct CheckpointChoice {
  enum class Kind : uint8_t {
    // The best where early stopping ended it, if there is one, else the newest.
    kAutomatic,
    kNewest,
    kBest,  // by the metric of its evaluation
    kStep,
  };
  Kind kind = Kind::kAutomatic;
  int64_t step = 0;  // kStep
};

// "newest", "best" or the number of a step. Throws Error(kInvalidArgument).
CheckpointChoice ParseCheckpointChoice(const std::string& text);

struct ChosenCheckpoint {
  CheckpointManager::Restored restored;
  std::string why;  // such as "the newest", for people
};

// Reads the chosen checkpoint; nullopt if the folder has none. Throws Error:
// kNotFound for a step without a checkpoint, or if the best is asked for and
// none was evaluated to a number, NaN being none; kDataLoss if the one asked
// for, or every one, is damaged.
std::optional<ChosenCheckpoint> ChooseCheckpoint(
    const std::string& directory, const CheckpointChoice& choice);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_CHECKPOINT_CHOICE_H_
