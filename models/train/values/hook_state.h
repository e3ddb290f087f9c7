// What hooks left in a checkpoint (models/train/hooks/hook.h), for those that
// only read it, and what several hooks leave there.
#ifndef SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_
#define SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_

#include <optional>
#include <string>

#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "io/checkpoints/checkpoint.h"

namespace sluice {

// Where TrainingState::extra has the state of a hook.
std::string HookStateKey(const std::string& name);

// The best value up to now, "best" of a state: as JSON, which has no number for
// one that is infinite, and again. Nullopt: the state has none. BestIn throws
// Error(kInvalidArgument) for what BestAsJson did not write.
Json BestAsJson(double best);
std::optional<double> BestIn(const JsonObject& state);

// Of EarlyStopping.
inline constexpr char kEarlyStoppingState[] = "early_stopping";
// Whether that is why the training of a checkpoint ended.
bool EndedByEarlyStopping(const TrainingState& state);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_VALUES_HOOK_STATE_H_
