#include "models/cli/rate_flags.h"

#include <fmt/format.h>

namespace sluice {

std::string WrongRateFlags(const TrainerSpec& spec,
                           const std::map<std::string, FlagSource>& set,
                           OptimizerFlags* flags) {
  const auto given = [&](const std::string& name) {
    const auto found = set.find(name);
    return found != set.end() && found->second == FlagSource::kGiven;
  };
  std::string height;
  for (const Flag& flag : spec.flags) {
    if (flag.rate == Flag::Rate::kHeight) height = flag.name;
  }
  const bool keeps = set.contains(height);
  for (const Flag& flag : spec.flags) {
    if (flag.rate == Flag::Rate::kNone || !set.contains(flag.name)) continue;
    if (!flags->learning_rate.empty()) {
      // A rate that was given takes the place of a training's.
      if (!given(flag.name)) continue;
      return fmt::format(
          "--{} is of the program's learning rate, which --learning-rate "
          "takes the place of",
          flag.name);
    }
    if (flags->optimizer.empty() || keeps) continue;
    if (!given(flag.name) && !given("optimizer")) continue;
    return fmt::format(
        "--{} is of the program's learning rate: beside --optimizer, which "
        "has one of its own, give --{}, too",
        flag.name, height);
  }
  flags->keeps_rate = keeps && !flags->optimizer.empty();
  return "";
}

}  // namespace sluice
