#include "models/train/run/training_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/parse_number.h"
#include "engine/status.h"
#include "models/optim/gradient_hooks.h"

namespace sluice {
namespace {

// In TrainingState::extra; the first two where there are some.
constexpr char kVirtualWorkers[] = "virtual_workers";
constexpr char kAccumulates[] = "accumulates";
constexpr char kBatchSize[] = "batch_size";
constexpr char kExamples[] = "examples";

std::optional<int64_t> NumberIn(const TrainingState& state, const char* key) {
  const auto found = state.extra.find(key);
  if (found == state.extra.end()) return std::nullopt;
  return ParseWhole<int64_t>(found->second);
}

// Throws Error(kDataLoss) where one of them is no number.
void CheckNumbers(const TrainingState& state, const std::string& source) {
  for (const char* key :
       {kVirtualWorkers, kAccumulates, kBatchSize, kExamples}) {
    if (state.extra.contains(key) && !NumberIn(state, key)) {
      throw Error(
          Code::kDataLoss,
          fmt::format("'{}': metadata 'extra.{}' is no number", source, key));
    }
  }
}

// nullopt: one of a time before it was written down, by some.
std::optional<int64_t> AccumulatesOf(const Checkpoint& checkpoint) {
  const auto said = NumberIn(checkpoint.state, kAccumulates);
  if (said) return said;
  const bool some =
      std::any_of(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                  [](const NamedTensor& tensor) {
                    return IsAccumulatedGradient(tensor.name);
                  });
  return some ? std::nullopt : std::optional<int64_t>(1);
}

// How lists of classes differ.
std::string Difference(const std::vector<std::string>& before,
                       const std::vector<std::string>& now) {
  if (before.size() != now.size()) {
    return fmt::format("there were {}, now there are {}", before.size(),
                       now.size());
  }
  const auto [was, is] =
      std::mismatch(before.begin(), before.end(), now.begin());
  return fmt::format("number {} was '{}', now it is '{}'", was - before.begin(),
                     *was, *is);
}

template <typename... Args>
void Refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Code::kInvalidArgument,
              fmt::format(format, std::forward<Args>(args)...) +
                  ", or begin anew with --restart");
}

}  // namespace

void TrainingTerms::Save(int64_t examples, TrainingState* state) const {
  state->seed = seed;
  state->class_names = class_names;
  const auto note = [&](const char* key, int64_t value) {
    state->extra[key] = fmt::format("{}", value);
  };
  if (virtual_workers > 0) note(kVirtualWorkers, virtual_workers);
  if (accumulates > 1) note(kAccumulates, accumulates);
  note(kBatchSize, batch_size);
  note(kExamples, examples);
}

void TrainingTerms::Check(const Checkpoint& checkpoint,
                          const std::string& source) const {
  const TrainingState& state = checkpoint.state;
  CheckNumbers(state, source);
  if (state.seed != seed) {
    Refuse("'{}' was trained with seed {}, now it is {}; go on with --seed {}",
           source, state.seed, seed, state.seed);
  }
  if (!state.class_names.empty() && state.class_names != class_names) {
    Refuse("'{}' was trained on other classes: {}; go on with the same data",
           source, Difference(state.class_names, class_names));
  }
  if (state.step == 0) return;
  if (const int64_t before = NumberIn(state, kVirtualWorkers).value_or(0);
      before != virtual_workers) {
    const auto text = [](int64_t n) {
      return n == 0 ? "none" : fmt::format("{}", n);
    };
    Refuse(
        "'{}' was trained with {} virtual workers, now there are {}; go on "
        "with as many (--virtual-workers)",
        source, text(before), text(virtual_workers));
  }
  // What is collected is of so many batches, and updates are counted by them.
  if (const auto before = AccumulatesOf(checkpoint);
      before.value_or(accumulates) != accumulates) {
    Refuse(
        "'{}' was trained with an update after every {} batches, now it is "
        "after every {}; go on with --accumulate {}",
        source, *before, accumulates, *before);
  }
  if (batch_by_workers) return;
  if (const int64_t before = NumberIn(state, kBatchSize).value_or(batch_size);
      before != batch_size) {
    Refuse(
        "'{}' was trained with batches of {} examples, now they are of {}; "
        "go on with --batch-size {}",
        source, before, batch_size, before);
  }
  if (ExamplesOf(state) != state.step * batch_size) {
    Refuse(
        "'{}' was trained with batches of several sizes; go on with "
        "--batch-size-per-worker",
        source);
  }
}

int64_t TrainingTerms::ExamplesOf(const TrainingState& state) const {
  return NumberIn(state, kExamples).value_or(state.step * batch_size);
}

}  // namespace sluice
