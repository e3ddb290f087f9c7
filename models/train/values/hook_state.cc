#include "models/train/values/hook_state.h"

#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr char kAboveAll[] = "inf", kBelowAll[] = "-inf";

}  // namespace

std::string HookStateKey(const std::string& name) {
  return "hook." + name;
}

Json BestAsJson(double best) {
  if (!std::isinf(best)) return best;
  return best > 0 ? kAboveAll : kBelowAll;
}

std::optional<double> BestIn(const JsonObject& state) {
  if (!state.Has("best")) return std::nullopt;
  const Result<std::string> text = state.String("best");
  if (text.ok() && *text == kAboveAll) return kInfinity;
  if (text.ok() && *text == kBelowAll) return -kInfinity;
  return state.Double("best").ValueOrThrow();
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
