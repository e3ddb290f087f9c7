#include "apps/shards/class_numbers.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/shards/label_offset.h"
#include "apps/shards/note_once.h"
#include "engine/status.h"

namespace sluice::shards {
namespace {

// Two classes of one name cannot be told apart by it.
void RequireUnique(const std::string& what, std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{} number their classes otherwise than the training "
                          "did, and '{}' is the name of two classes",
                          what, *twice));
}

}  // namespace

std::vector<int64_t> Renumbering(const std::string& what,
                                 const std::vector<std::string>& data,
                                 const std::vector<std::string>& training) {
  if (data.empty() || training.empty() || data == training) return {};
  RequireUnique(what, data);
  RequireUnique(what, training);
  std::vector<int64_t> numbers;
  for (const std::string& name : data) {
    const auto found = std::find(training.begin(), training.end(), name);
    if (found == training.end()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("{} have a class '{}', which is none of the {} "
                              "that were trained",
                              what, name, training.size()));
    }
    numbers.push_back(found - training.begin());
  }
  return numbers;
}

void RequireNumbers(const RunContext& run, const std::string& what) {
  if (run.training() || !run.class_names.empty()) return;
  // What was trained on files and has no names was a labels.csv.
  if (run.trained_on.find("images-") != std::string::npos) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}, training has numbers of a labels.csv", what));
  }
  if (!LabelOffsetOfTraining(run)) return;
  NoteOnce(
      fmt::format("{}, the training's records did not: their numbers are "
                  "taken for the same classes in the same order",
                  what));
}

}  // namespace sluice::shards
