#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "apps/sluice/commands.h"
#include "apps/sluice/without_repeats.h"
#include "engine/status.h"
#include "engine/text/json_object.h"
#include "io/files/file.h"
#include "io/files/schemes.h"
#include "models/report/runs_page.h"
#include "models/train/hooks/scalar_log.h"

namespace sluice::tool {
namespace {

namespace fs = std::filesystem;

// A path's parts, without those that lead nowhere.
std::vector<std::string> PartsOf(const std::string& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : fs::path(path)) {
    if (!part.empty() && part != ".") parts.push_back(part.string());
  }
  return parts;
}

// How many parts all paths begin with, and have more behind.
size_t CommonParts(const std::vector<std::vector<std::string>>& paths) {
  if (paths.size() < 2) return 0;
  size_t common = 0;
  const auto shared = [&](const std::vector<std::string>& parts) {
    return common + 1 < parts.size() && parts[common] == paths[0][common];
  };
  while (std::all_of(paths.begin(), paths.end(), shared)) ++common;
  return common;
}

// The folders' paths as far as these tell them apart.
std::vector<std::string> NamesOf(const std::vector<std::string>& folders) {
  std::vector<std::vector<std::string>> paths;
  paths.reserve(folders.size());
  for (const std::string& folder : folders) paths.push_back(PartsOf(folder));
  const size_t common = CommonParts(paths);
  std::vector<std::string> names;
  for (size_t n = 0; n < folders.size(); ++n) {
    if (common == 0 && !SchemeOf(folders[n]).empty()) {
      names.push_back(folders[n]);  // whose "//" is no path's
      continue;
    }
    const std::vector<std::string>& parts = paths[n];
    fs::path name;
    for (size_t i = common; i < parts.size(); ++i) name /= parts[i];
    names.push_back(name.empty() ? "." : name.string());
  }
  return names;
}

std::vector<ScalarRow> RowsOf(const std::string& folder) {
  auto rows = ReadScalars(folder);
  if (rows.status().code() == Code::kNotFound) {
    throw Error(Code::kNotFound,
                fmt::format("'{}' holds no scalars.csv, which a training "
                            "writes into its --log-dir",
                            folder));
  }
  return std::move(rows).ValueOrThrow();
}

// Of run.json (models/cli/run_record.h).
Result<report::RunFacts> ParseFacts(const std::string& text) {
  report::RunFacts facts;
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  SLUICE_ASSIGN_OR_RETURN(facts.model, json.String("model"));
  if (facts.model.empty()) {
    SLUICE_ASSIGN_OR_RETURN(facts.model, json.String("program"));
  }
  SLUICE_ASSIGN_OR_RETURN(const JsonObject flags, json.Object("flags"));
  for (const std::string& name : flags.names()) {
    SLUICE_ASSIGN_OR_RETURN(facts.flags[name], flags.String(name));
  }
  if (json.Has("higher_is_better")) {
    SLUICE_ASSIGN_OR_RETURN(facts.higher_is_better,
                            json.Bool("higher_is_better"));
  }
  return facts;
}

// The curves are worth a page without them.
report::RunFacts FactsOf(const std::string& folder) {
  const auto text = FileSystem::Default().Read(JoinPath(folder, "run.json"));
  if (text.status().code() == Code::kNotFound) return {.note = "no run.json"};
  Result<report::RunFacts> facts =
      text.ok() ? ParseFacts(*text) : Result<report::RunFacts>(text.status());
  if (facts.ok()) return *std::move(facts);
  return {.note = "run.json cannot be read: " + facts.status().message()};
}

std::string Count(size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace

void WriteReport(const std::vector<std::string>& log_dirs,
                 const std::string& output) {
  const std::vector<std::string> folders = WithoutRepeats(log_dirs);
  const std::vector<std::string> names = NamesOf(folders);
  std::vector<report::RunCurves> runs;
  for (size_t i = 0; i < folders.size(); ++i) {
    runs.push_back({names[i], RowsOf(folders[i]), FactsOf(folders[i])});
  }
  ThrowIfError(
      FileSystem::Default().WriteAtomically(output, report::RunsPage(runs)));
  size_t curves = 0;
  for (const report::Chart& chart : report::ChartsOf(runs)) {
    curves += chart.series.size();
  }
  fmt::print("wrote {}: {}, {}\n", output, Count(runs.size(), "run"),
             Count(curves, "curve"));
}

}  // namespace sluice::tool
