#include "models/train/values/hook_state.h"

#include "engine/text/json_object.h"

namespace sluice {

std::string HookStateKey(const std::string& name) {
  return "hook." + name;
}

bool EndedByEarlyStopping(const TrainingState& state) {
  const auto found = state.extra.find(HookStateKey(kEarlyStoppingState));
  if (found == state.extra.end()) return false;
  const auto json = JsonObject::Parse(found->second);
  if (!json.ok()) return false;
  const auto ended = json->Bool("ended");
  return ended.ok() && *ended;
}

}  // namespace sluice
