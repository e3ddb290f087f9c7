#include "models/cli/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/text/json.h"
#include "engine/text/thousands.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"
#include "models/cli/console.h"
#include "models/cli/progress.h"

namespace sluice {

std::string ModelName(const TrainerSpec& spec, const RunContext& run) {
  return spec.model_name ? spec.model_name(run) : spec.name;
}

std::string DatasetName(const TrainerSpec& spec, const RunContext& run) {
  if (spec.dataset_name) return WithoutQuery(spec.dataset_name(run));
  return run.data_dir.empty() ? "synthetic" : WithoutQuery(run.data_dir);
}

void CheckPage(std::string_view flag, const std::string& path) {
  const std::string folder = ParentDirectory(path);
  // An object store has every folder.
  if (SchemeOf(path).empty() &&
      !FileSystem::Default().Exists(folder).ValueOrThrow()) {
    throw Error(Code::kNotFound, fmt::format("{} {}: there is no folder '{}'",
                                             flag, path, folder));
  }
  if (path.empty() || IsFolder(path).ValueOrThrow()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} '{}': wanted a file to write", flag, path));
  }
}

void PrintResult(const TrainerSpec& spec, const CommandLine& line,
                 const Evaluation& evaluation, double examples_per_second,
                 double seconds, const std::vector<int64_t>& dropped) {
  const std::string model = ModelName(spec, line.run);
  const std::string dataset = DatasetName(spec, line.run);
  if (!line.json) {
    console::Print(fmt::format(
        "{} on {}: {} {} ({} examples) after {} steps; {} examples/s, "
        "{:.1f} s{}",
        model, dataset, evaluation.set, Describe(evaluation.values),
        WithThousands(evaluation.examples), evaluation.step,
        WithThousands(std::llround(examples_per_second)), seconds,
        dropped.empty() ? ""
                        : fmt::format(", contributions dropped of each worker: "
                                      "{}",
                                      fmt::join(dropped, ", "))));
    return;
  }
  Json result = {{"event", "result"},
                 {"model", model},
                 {"dataset", dataset},
                 {"steps", evaluation.step},
                 {"evaluated_on", evaluation.set}};
  // Without metrics, the loss.
  const size_t first = evaluation.values.size() > 1 ? 1 : 0;
  for (size_t i = first; i < evaluation.values.size(); ++i) {
    const auto& [name, value] = evaluation.values[i];
    result[fmt::format("{}_{}", evaluation.set, name)] = value;
  }
  if (const int64_t bad = line.run.bad_examples->count(); bad > 0) {
    result["bad_examples"] = bad;
  }
  if (!evaluation.checkpoint.empty()) {
    result["checkpoint"] = evaluation.checkpoint;
  }
  if (!dropped.empty()) result["dropped"] = dropped;
  result["examples_per_second"] = examples_per_second;
  result["seconds"] = seconds;
  console::Print(result.LenientText());  // paths are any bytes
}

BadReport::~BadReport() {
  if (printed_) return;
  try {
    Print();
  } catch (...) {
    // The error that is under way says more.
  }
}

void BadReport::Print() const {
  printed_ = true;
  constexpr size_t kMost = 10;
  const std::vector<std::string> messages = bad_.messages();
  if (messages.empty()) return;
  console::Note(
      fmt::format("passed over as they cannot be read: {}", messages.size()));
  for (size_t i = 0; i < std::min(messages.size(), kMost); ++i) {
    console::Note("  " + messages[i]);
  }
  if (messages.size() > kMost) {
    console::Note(fmt::format("  and {} more", messages.size() - kMost));
  }
}

}  // namespace sluice
