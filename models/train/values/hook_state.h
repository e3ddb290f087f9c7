// What hooks left in a checkpoint (models/train/hooks/hook.h), for those that
// only read it.
#ifndef SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_
#define SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_

#include <string>

#include "io/checkpoints/checkpoint.h"

namespace sluice {

// Where TrainingState::extra has the state of a hook.
std::string HookStateKey(const std::string& name);

// Of EarlyStopping.
inline constexpr char kEarlyStoppingState[] = "early_stopping";
// Whether that is why the training of a checkpoint ended.
bool EndedByEarlyStopping(const TrainingState& state);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_
