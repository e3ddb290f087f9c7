// The states of hooks in a checkpoint (models/train/hooks/hook.h), for readers
// other than the hooks, and fields that several states share.
#ifndef SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_
#define SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_

#include <optional>
#include <string>

#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "io/checkpoints/checkpoint.h"

namespace sluice {

// The key of a hook's state in TrainingState::extra.
std::string HookStateKey(const std::string& name);

// The best value so far, field "best" of a state: converts it to JSON, which
// has no number for infinity, and back. nullopt: the state has none. BestIn
// throws Error(kInvalidArgument) for a value that BestAsJson did not write.
Json BestAsJson(double best);
std::optional<double> BestIn(const JsonObject& state);

// The name of EarlyStopping's state.
inline constexpr char kEarlyStoppingState[] = "early_stopping";
// Whether EarlyStopping ended the training of a checkpoint.
bool EndedByEarlyStopping(const TrainingState& state);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_
