#include "io/checkpoints/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "engine/catch_errors.h"
#include "engine/parse_number.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "io/checkpoints/safetensors_header.h"
#include "io/files/move_file.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"

namespace sluice {
namespace {

// Metadata keys. All but extra.* are always written.
constexpr char kFormat[] = "sluice.checkpoint";
constexpr char kFormatVersion[] = "1";
constexpr char kStep[] = "step";
constexpr char kSeed[] = "seed";
constexpr char kDatasetPosition[] = "dataset_position";
constexpr char kSchedule[] = "schedule";
constexpr char kLossScale[] = "loss_scale";
constexpr char kMetric[] = "metric";
constexpr char kClassNames[] = "class_names";
constexpr std::string_view kExtraPrefix = "extra.";

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";

// To read what was listed: whoever saves beside this removes old ones.
constexpr int kAttempts = 10;

// Not where it is damaged, or gone.
bool MayBeReadLater(const Status& status) {
  return status.code() == Code::kUnavailable ||
         status.code() == Code::kFailedPrecondition;
}

bool LacksMemory(const Status& status) {
  return status.code() == Code::kResourceExhausted;
}

std::string ThisProcess() {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return fmt::format("process {} on {}", getpid(), host);
}

Metadata ToMetadata(const TrainingState& state) {
  // fmt prints the shortest text that reads back as the same double.
  Metadata metadata = {{kFormat, kFormatVersion},
                       {kStep, fmt::format("{}", state.step)},
                       {kSeed, fmt::format("{}", state.seed)},
                       {kDatasetPosition, state.dataset_position},
                       {kSchedule, state.schedule},
                       {kLossScale, fmt::format("{}", state.loss_scale)}};
  if (!state.class_names.empty()) {
    metadata[kClassNames] = Json(state.class_names).LenientText();
  }
  if (state.metric) metadata[kMetric] = fmt::format("{}", *state.metric);
  for (const auto& [key, value] : state.extra) {
    metadata[std::string(kExtraPrefix) + key] = value;
  }
  return metadata;
}

Result<std::vector<std::string>> ParseNames(const std::string& text) {
  Result<std::vector<std::string>> names = ParseJsonStrings(text);
  if (names.ok()) return names;
  return DataLoss("metadata 'class_names' is no list of names");
}

Result<TrainingState> FromMetadata(const Metadata& metadata) {
  TrainingState state;
  const auto format = metadata.find(kFormat);
  if (format == metadata.end()) return state;
  if (format->second != kFormatVersion) {
    return Unimplemented(
        fmt::format("checkpoint format {}; this program reads format {}",
                    format->second, kFormatVersion));
  }
  std::string bad;
  const auto number = [&]<typename T>(const char* key, T* value) {
    const auto found = metadata.find(key);
    const auto parsed =
        found == metadata.end() ? std::nullopt : ParseWhole<T>(found->second);
    if (parsed) {
      *value = *parsed;
    } else {
      bad = key;
    }
  };
  const auto text = [&](const char* key, std::string* value) {
    const auto found = metadata.find(key);
    if (found != metadata.end()) *value = found->second;
  };
  number(kStep, &state.step);
  number(kSeed, &state.seed);
  number(kLossScale, &state.loss_scale);
  text(kDatasetPosition, &state.dataset_position);
  text(kSchedule, &state.schedule);
  if (metadata.contains(kMetric)) number(kMetric, &state.metric.emplace());
  if (metadata.contains(kClassNames)) {
    SLUICE_ASSIGN_OR_RETURN(state.class_names,
                            ParseNames(metadata.at(kClassNames)));
  }
  if (!bad.empty()) {
    return DataLoss(fmt::format("metadata '{}' is no number", bad));
  }
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(kExtraPrefix)) {
      state.extra[key.substr(kExtraPrefix.size())] = value;
    }
  }
  return state;
}

// What `read` returns of the file, beside whoever saves. One that is replaced
// or removed while it is read stays readable on a disk, but is kUnavailable in
// an object store, as where that is away: what has become of it is read
// instead, or it is kNotFound.
template <typename Read>
std::invoke_result_t<const Read&> ReadBesideSaving(const std::string& path,
                                                   FileSystem& files,
                                                   const Read& read) {
  for (int attempt = 1;; ++attempt) {
    const Result<std::string> before = files.Version(path);
    auto result = read();
    if (result.status().code() != Code::kUnavailable || !before.ok()) {
      return result;
    }
    const Result<std::string> now = files.Version(path);
    if (now.status().code() == Code::kNotFound) return now.status();
    if (!now.ok() || *now == *before || attempt == kAttempts) return result;
  }
}

std::optional<int64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
      name.size() <= kPrefix.size() + kSuffix.size()) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  const auto step = ParseWhole<int64_t>(name);
  // Of another spelling, such as 000600, PathOf is another file.
  const bool ours = step && *step >= 0 && fmt::format("{}", *step) == name;
  return ours ? step : std::nullopt;
}

}  // namespace

std::string PrintTrainingState(const TrainingState& state) {
  return Json(ToMetadata(state)).LenientText();
}

Result<TrainingState> ParseTrainingState(const std::string& text) {
  Metadata metadata;
  const auto read = [&]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
    for (const std::string& key : json.names()) {
      SLUICE_ASSIGN_OR_RETURN(metadata[key], json.String(key));
    }
    return {};
  };
  if (!read().ok() || !metadata.contains(kFormat)) {
    return DataLoss("not the state of a training");
  }
  return CatchErrors([&] { return FromMetadata(metadata); });
}

Result<TrainingState> TrainingStateOf(const Safetensors& file,
                                      const std::string& path) {
  if (file.metadata.contains(kFormat) && !file.checksummed) {
    return DataLoss(
        fmt::format("'{}': its checksum is missing; the file is damaged",
                    WithoutQuery(path)));
  }
  auto state = CatchErrors([&] { return FromMetadata(file.metadata); });
  if (state.ok()) return state;
  return state.status().WithContext(fmt::format("'{}'", WithoutQuery(path)));
}

Status WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint,
                       FileSystem& files) {
  return WriteSafetensors(path, checkpoint.tensors, checkpoint.by_rows,
                          ToMetadata(checkpoint.state), files);
}

Result<Checkpoint> ReadCheckpoint(const std::string& path, FileSystem& files,
                                  const Leave& leave) {
  SLUICE_ASSIGN_OR_RETURN(Safetensors file,
                          ReadSafetensors(path, leave, files));
  SLUICE_ASSIGN_OR_RETURN(TrainingState state, TrainingStateOf(file, path));
  return Checkpoint{std::move(state), std::move(file.tensors),
                    std::move(file.by_rows)};
}

CheckpointManager::CheckpointManager(std::string directory, Options options)
    : options_(std::move(options)),
      files_(options_.files != nullptr ? options_.files
                                       : &FileSystem::Default()),
      directory_(std::move(directory)) {}

Result<CheckpointManager> CheckpointManager::Open(const std::string& directory,
                                                  Options options) {
  if (options.keep < 1) {
    return InvalidArgument(fmt::format(
        "checkpoints: got {} to keep, wanted at least 1", options.keep));
  }
  CheckpointManager manager(directory, options);
  FileSystem& files = *manager.files_;
  SLUICE_RETURN_IF_ERROR(files.MakeDirectories(directory));
  auto lock =
      files.Lock(JoinPath(directory, kLockName), ThisProcess(), options.waits);
  if (lock.status().code() == Code::kFailedPrecondition) {
    return FailedPrecondition(fmt::format(
        "'{}' belongs to a training that is under way ({}); wait for its end "
        "or choose another folder",
        directory, lock.status().message()));
  }
  SLUICE_ASSIGN_OR_RETURN(manager.lock_, std::move(lock));
  SLUICE_ASSIGN_OR_RETURN(const auto names, files.List(directory));
  for (const std::string& name : names) {
    if (name.starts_with(kPrefix) && IsTemporaryName(name)) {
      SLUICE_RETURN_IF_ERROR(files.Remove(JoinPath(directory, name)));
    }
  }
  return manager;
}

CheckpointManager CheckpointManager::ForReading(const std::string& directory,
                                                Options options) {
  return CheckpointManager(directory, std::move(options));
}

Status CheckpointManager::CheckSaves() const {
  if (lock_ != nullptr) return {};
  return FailedPrecondition(
      fmt::format("'{}' was opened for reading", directory_));
}

std::string CheckpointManager::PathOf(int64_t step) const {
  return JoinPath(directory_, fmt::format("{}{}{}", kPrefix, step, kSuffix));
}

Result<std::vector<int64_t>> CheckpointManager::Steps() const {
  if (lock_ == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const bool there, files_->Exists(directory_));
    if (!there) return std::vector<int64_t>();
  }
  SLUICE_ASSIGN_OR_RETURN(const auto names, files_->List(directory_));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = StepOfName(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<SafetensorsHeader> CheckpointManager::HeaderOf(int64_t step) const {
  return CatchErrors([&] {
    const std::string path = PathOf(step);
    return ReadBesideSaving(
        path, *files_, [&] { return ReadSafetensorsHeader(path, *files_); });
  });
}

Result<std::optional<double>> CheckpointManager::MetricOf(int64_t step) const {
  if (const auto known = metrics_.find(step); known != metrics_.end()) {
    return known->second;
  }
  SLUICE_ASSIGN_OR_RETURN(const SafetensorsHeader header, HeaderOf(step));
  const auto state = CatchErrors([&] { return FromMetadata(header.metadata); });
  if (LacksMemory(state.status())) return state.status();
  std::optional<double> metric;
  // NaN is no candidate for the best.
  if (state.ok() && state->metric && *state->metric == *state->metric) {
    metric = state->metric;
  }
  if (lock_ != nullptr) metrics_[step] = metric;
  return metric;
}

Result<std::optional<int64_t>> CheckpointManager::BestOf(
    const std::vector<int64_t>& steps,
    std::map<int64_t, Status>* unread) const {
  std::optional<int64_t> best;
  const double sign = options_.higher_is_better ? 1 : -1;
  double best_value = 0;
  for (const int64_t step : steps) {
    const Result<std::optional<double>> metric = MetricOf(step);
    if (LacksMemory(metric.status())) return metric.status();
    if (!metric.ok()) {
      unread->emplace(step, metric.status());
      continue;
    }
    if (*metric && (!best || sign * **metric >= best_value)) {
      best = step;
      best_value = sign * **metric;
    }
  }
  return best;
}

Result<std::optional<int64_t>> CheckpointManager::BestStep() const {
  SLUICE_ASSIGN_OR_RETURN(const auto steps, Steps());
  std::map<int64_t, Status> unread;  // these do not count
  return BestOf(steps, &unread);
}

Result<std::string> CheckpointManager::Save(const Checkpoint& checkpoint) {
  SLUICE_RETURN_IF_ERROR(CheckSaves());
  const int64_t step = checkpoint.state.step;
  const std::string path = PathOf(step);
  metrics_.erase(step);
  SLUICE_RETURN_IF_ERROR(WriteCheckpoint(path, checkpoint, *files_));
  SLUICE_RETURN_IF_ERROR(Prune(step));
  return path;
}

Status CheckpointManager::Prune(int64_t saved) {
  SLUICE_ASSIGN_OR_RETURN(const auto steps, Steps());
  std::map<int64_t, Status> unread;
  SLUICE_ASSIGN_OR_RETURN(const auto best, BestOf(steps, &unread));
  const size_t keep = static_cast<size_t>(options_.keep);
  for (size_t i = 0; i + keep < steps.size(); ++i) {
    if (steps[i] == saved || steps[i] == best) continue;
    // It may be the best. Asked again it could answer, too late to be compared.
    const auto found = unread.find(steps[i]);
    if (found != unread.end() && MayBeReadLater(found->second)) continue;
    const Status removed = files_->Remove(PathOf(steps[i]));
    // Somebody else may have been quicker.
    if (removed.code() != Code::kNotFound) SLUICE_RETURN_IF_ERROR(removed);
    metrics_.erase(steps[i]);
  }
  return {};
}

Result<std::optional<CheckpointManager::Restored>>
CheckpointManager::RestoreNewest(const Leave& leave) const {
  std::vector<int64_t> steps;
  std::vector<std::string> warnings;
  bool again = true;
  for (int attempt = 1; again; ++attempt) {
    SLUICE_ASSIGN_OR_RETURN(steps, Steps());
    if (steps.empty()) return std::optional<Restored>();
    warnings.clear();
    again = false;
    for (auto step = steps.rbegin(); step != steps.rend() && !again; ++step) {
      std::string path = PathOf(*step);
      auto checkpoint = ReadBesideSaving(
          path, *files_, [&] { return ReadCheckpoint(path, *files_, leave); });
      if (checkpoint.ok()) {
        return std::optional(Restored{*std::move(checkpoint), std::move(path),
                                      std::move(warnings)});
      }
      const Status why = checkpoint.status();
      if (why.code() == Code::kNotFound) {
        // It was removed for a newer one, which is not among these.
        again = attempt < kAttempts;
        continue;
      }
      // There is nothing wrong with it.
      if (LacksMemory(why)) return why;
      // A disk that cannot read a file will not tomorrow; a server may, and
      // what is trained from an older one would take the newer one's place.
      if (!SchemeOf(path).empty() && MayBeReadLater(why)) return why;
      warnings.push_back(fmt::format(
          "checkpoint of step {} cannot be used, falling back to an older "
          "one: {}",
          *step, why.message()));
    }
  }
  return DataLoss(fmt::format(
      "none of the {} checkpoints in '{}' can be read; move them away or "
      "choose another folder to start anew. The newest: {}",
      steps.size(), directory_,
      warnings.empty() ? "it is gone" : warnings.front()));
}

Result<CheckpointManager::Restored> CheckpointManager::RestoreStep(
    int64_t step) const {
  std::string path = PathOf(step);
  auto checkpoint = ReadBesideSaving(
      path, *files_, [&] { return ReadCheckpoint(path, *files_); });
  if (checkpoint.ok()) {
    return Restored{*std::move(checkpoint), std::move(path), {}};
  }
  if (checkpoint.status().code() != Code::kNotFound) {
    return checkpoint.status();
  }
  SLUICE_ASSIGN_OR_RETURN(const auto steps, Steps());
  return NotFound(fmt::format("no checkpoint of step {} in '{}', only of: {}",
                              step, directory_, fmt::join(steps, ", ")));
}

Result<std::optional<CheckpointManager::Restored>>
CheckpointManager::RestoreBest() const {
  for (int attempt = 1;; ++attempt) {
    SLUICE_ASSIGN_OR_RETURN(const auto steps, Steps());
    std::map<int64_t, Status> unread;
    SLUICE_ASSIGN_OR_RETURN(const auto best, BestOf(steps, &unread));
    for (const auto& [step, why] : unread) {
      // It might be the best.
      if (why.code() != Code::kNotFound) return why;
    }
    SLUICE_ASSIGN_OR_RETURN(const auto now, Steps());
    // So might one that was saved meanwhile, for which another was removed.
    const bool others = !unread.empty() || now != steps;
    if (others && attempt < kAttempts) continue;
    if (!best) return std::optional<Restored>();
    auto restored = RestoreStep(*best);
    const bool gone = restored.status().code() == Code::kNotFound;
    if (gone && attempt < kAttempts) continue;
    SLUICE_RETURN_IF_ERROR(restored.status());
    return std::optional(*std::move(restored));
  }
}

Result<std::string> CheckpointManager::SetAside(
    const std::vector<std::string>& beside) {
  SLUICE_RETURN_IF_ERROR(CheckSaves());
  SLUICE_ASSIGN_OR_RETURN(const auto steps, Steps());
  std::vector<std::string> names;
  for (auto name = beside.rbegin(); name != beside.rend(); ++name) {
    SLUICE_ASSIGN_OR_RETURN(const bool there,
                            files_->Exists(JoinPath(directory_, *name)));
    if (there) names.push_back(*name);
  }
  for (const int64_t step : steps) {
    const std::string path = PathOf(step);
    names.push_back(path.substr(path.rfind('/') + 1));
  }
  if (names.empty()) return std::string();
  std::string folder;
  bool taken = true;
  for (int n = 1; taken; ++n) {
    folder = JoinPath(directory_, fmt::format("previous-{}", n));
    SLUICE_ASSIGN_OR_RETURN(taken, files_->Exists(folder));
  }
  SLUICE_RETURN_IF_ERROR(files_->MakeDirectories(folder));
  metrics_.clear();
  std::set<std::string> targets, sources;
  for (const std::string& name : names) {
    const std::string from = JoinPath(directory_, name);
    const std::string to = JoinPath(folder, name);
    SLUICE_RETURN_IF_ERROR(files_->MakeDirectories(ParentDirectory(to)));
    SLUICE_RETURN_IF_ERROR(MoveFile(from, to, *files_));
    targets.insert(ParentDirectory(to));
    sources.insert(ParentDirectory(from));
  }
  // Backwards: the checkpoints' folder, which holds the others, is the last.
  for (const auto* folders : {&targets, &sources}) {
    for (auto each = folders->rbegin(); each != folders->rend(); ++each) {
      SLUICE_RETURN_IF_ERROR(files_->SyncDirectory(*each));
    }
  }
  return folder;
}

}  // namespace sluice
