#include "models/train/values/checkpoint_choice.h"

#include <fmt/format.h>

#include "engine/parse_number.h"
#include "models/train/values/hook_state.h"

namespace sluice {
namespace {

using Kind = CheckpointChoice::Kind;

}  // namespace

CheckpointChoice ParseCheckpointChoice(const std::string& text) {
  if (text == "newest") return {.kind = Kind::kNewest};
  if (text == "best") return {.kind = Kind::kBest};
  const auto step = ParseWhole<int64_t>(text);
  if (step && *step >= 0) return {.kind = Kind::kStep, .step = *step};
  throw Error(Code::kInvalidArgument,
              fmt::format("wanted newest, best or the number of a step, got "
                          "'{}'",
                          text));
}

std::optional<ChosenCheckpoint> ChooseCheckpoint(
    const std::string& directory, const CheckpointChoice& choice) {
  const auto saved = CheckpointManager::ForReading(directory);
  if (saved.Steps().ValueOrThrow().empty()) return std::nullopt;
  if (choice.kind == Kind::kStep) {
    return ChosenCheckpoint{saved.RestoreStep(choice.step).ValueOrThrow(),
                            "the one asked for"};
  }
  if (choice.kind == Kind::kBest) {
    auto best = saved.RestoreBest().ValueOrThrow();
    if (best) return ChosenCheckpoint{*std::move(best), "the best one"};
    throw Error(Code::kNotFound,
                fmt::format("no checkpoint in '{}' was evaluated to a number, "
                            "so none is the best; ask for the newest",
                            directory));
  }
  auto newest = saved.RestoreNewest().ValueOrThrow();
  if (!newest) return std::nullopt;
  if (choice.kind == Kind::kNewest ||
      !EndedByEarlyStopping(newest->checkpoint.state)) {
    return ChosenCheckpoint{*std::move(newest), "the newest one"};
  }
  auto best = saved.RestoreBest().ValueOrThrow();
  if (best) {
    return ChosenCheckpoint{
        *std::move(best), "the best one, as early stopping ended the training"};
  }
  // A metric that is never a number does not get better either.
  return ChosenCheckpoint{*std::move(newest),
                          "the newest one, as none was evaluated to a number, "
                          "though early stopping ended the training"};
}

}  // namespace sluice
