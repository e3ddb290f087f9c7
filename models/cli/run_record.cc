#include "models/cli/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>

#include "engine/parse_number.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "io/checkpoints/checkpoint.h"
#include "io/files/file.h"
#include "models/cli/interrupt.h"
#include "models/cli/polling.h"

namespace sluice {
namespace {

constexpr char kFile[] = "run.json";
constexpr char kFormat[] = "sluice.run";

// Flags of what a training begins with, whatever it goes on with.
constexpr std::array kOfBeginning = {"weights", "reset"};

Result<FlagValues> FlagsOf(const JsonObject& json) {
  FlagValues flags;
  for (const std::string& name : json.names()) {
    SLUICE_ASSIGN_OR_RETURN(flags[name], json.String(name));
  }
  return flags;
}

// The bytes of a text, two digits each.
std::string HexOf(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return digits;
}

Result<std::string> TextOfHex(const std::string& digits) {
  std::string text;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const std::string_view two = std::string_view(digits).substr(i, 2);
    const auto byte = ParseWhole<uint8_t>(two, 16);
    if (!byte || two.size() < 2) {
      return InvalidArgument(fmt::format("'{}' are no bytes", digits));
    }
    text += static_cast<char>(*byte);
  }
  return text;
}

Status Parse(const std::string& text, RunRecord* record) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  SLUICE_ASSIGN_OR_RETURN(const std::string format, json.String("format"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t version, json.Int("version"));
  if (format != kFormat || version != 1) {
    return Unimplemented(fmt::format("{} {} is not known", format, version));
  }
  SLUICE_ASSIGN_OR_RETURN(record->program, json.String("program"));
  SLUICE_ASSIGN_OR_RETURN(record->version, json.String("sluice"));
  SLUICE_ASSIGN_OR_RETURN(record->model, json.String("model"));
  SLUICE_ASSIGN_OR_RETURN(const JsonObject flags, json.Object("flags"));
  SLUICE_ASSIGN_OR_RETURN(record->flags, FlagsOf(flags));
  if (json.Has("flag_bytes")) {
    SLUICE_ASSIGN_OR_RETURN(const JsonObject bytes, json.Object("flag_bytes"));
    SLUICE_ASSIGN_OR_RETURN(const FlagValues texts, FlagsOf(bytes));
    for (const auto& [name, digits] : texts) {
      SLUICE_ASSIGN_OR_RETURN(record->flags[name], TextOfHex(digits));
    }
  }
  if (json.Has("job")) {  // since there are restarts
    SLUICE_ASSIGN_OR_RETURN(record->job, json.String("job"));
  }
  if (json.Has("since")) {  // since it is known
    SLUICE_ASSIGN_OR_RETURN(record->since, json.Int("since"));
    SLUICE_ASSIGN_OR_RETURN(record->workers, json.Int("workers"));
    SLUICE_ASSIGN_OR_RETURN(record->devices, json.Int("devices"));
    SLUICE_ASSIGN_OR_RETURN(record->nodes, json.Int("nodes"));
  }
  if (json.Has("ended")) {
    SLUICE_ASSIGN_OR_RETURN(record->ended, json.Bool("ended"));
  }
  return {};
}

// nullopt where the folder has none, or one that cannot be read as such.
std::optional<RunRecord> ReadableRecord(const std::string& log_dir) {
  const Result<std::string> text =
      FileSystem::Default().Read(JoinPath(log_dir, kFile));
  if (text.status().code() == Code::kNotFound) return std::nullopt;
  ThrowIfError(text.status());
  RunRecord record;
  if (!Parse(*text, &record).ok()) return std::nullopt;
  return record;
}

// After which step a training that is at `step` is done by those of `now`,
// where `before` is its record until then. It may have gone back.
int64_t Since(const std::optional<RunRecord>& before, const RunRecord& now,
              int64_t step) {
  const bool same = before && before->since && before->workers == now.workers &&
                    before->devices == now.devices &&
                    before->nodes == now.nodes;
  return same ? std::min(*before->since, step) : step;
}

void Write(const std::string& log_dir, const nlohmann::ordered_json& json) {
  ThrowIfError(FileSystem::Default().WriteAtomically(
      JoinPath(log_dir, kFile),
      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
          "\n"));
}

void SetEnded(const std::string& log_dir, bool ended) {
  const std::string text =
      FileSystem::Default().Read(JoinPath(log_dir, kFile)).ValueOrThrow();
  auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_object()) return;  // whoever reads it says so
  json["ended"] = ended;
  Write(log_dir, json);
}

// Of a training that was set aside to begin anew: it had ended before.
void NoteOfSetAside(const std::string& log_dir) {
  std::string newest;
  for (int n = 1;; ++n) {
    const std::string folder = JoinPath(log_dir, fmt::format("previous-{}", n));
    if (!FileSystem::Default().Exists(folder).ValueOrThrow()) break;
    newest = folder;
  }
  if (!newest.empty()) NoteNotBegun(newest);
}

}  // namespace

RunRecord ParseRunRecord(const std::string& text, const std::string& path) {
  RunRecord record;
  if (const Status parsed = Parse(text, &record); !parsed.ok()) {
    throw Error(Code::kDataLoss,
                fmt::format("'{}' is no record of a training: {}", path,
                            parsed.message()));
  }
  return record;
}

std::optional<RunRecord> ReadRunRecord(const std::string& log_dir) {
  const std::string path = JoinPath(log_dir, kFile);
  Result<std::string> text = FileSystem::Default().Read(path);
  if (text.status().code() == Code::kNotFound) return std::nullopt;
  return ParseRunRecord(std::move(text).ValueOrThrow(), path);
}

bool HasCheckpoint(const std::string& log_dir) {
  return !CheckpointManager::ForReading(log_dir).Steps().ValueOrThrow().empty();
}

bool IsTrainingOf(const std::string& job, const std::string& log_dir) {
  if (job.empty() || log_dir.empty()) return false;
  const std::optional<RunRecord> record = ReadableRecord(log_dir);
  return record && record->job == job;
}

void RecordRun::Begin(TrainingRun& run) {
  const std::string& log_dir = run.options().log_dir;
  const std::optional<RunRecord> before = ReadableRecord(log_dir);
  if (!before && restart_) NoteOfSetAside(log_dir);
  for (const auto& [name, value] : *found_) record_.flags[name] = value;
  const bool goes_on = HasCheckpoint(log_dir);
  if (goes_on) {
    for (const char* name : kOfBeginning) {
      record_.flags.erase(name);
      if (!before || !before->flags.contains(name)) continue;
      record_.flags[name] = before->flags.at(name);
    }
  }
  const MirroredDevices& mirrored = run.options().mirrored;
  record_.workers = run.workers().size();
  record_.nodes = nodes_();
  record_.devices =
      record_.workers *
      (mirrored.any() ? static_cast<int64_t>(mirrored.devices.size()) : 1);
  record_.since = Since(before, record_, run.step());
  if (goes_on && !run.done() && before && before->since &&
      before->devices != record_.devices &&
      run.options().virtual_workers == 0 && !run.workers().elastic()) {
    run.options().Note(
        fmt::format("it was trained by {} processes or devices, now by {}: "
                    "without --virtual-workers that is another training",
                    before->devices, record_.devices));
  }
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"version", 1},
                                 {"program", record_.program},
                                 {"sluice", record_.version},
                                 {"model", record_.model},
                                 {"workers", record_.workers},
                                 {"devices", record_.devices},
                                 {"nodes", record_.nodes},
                                 {"since", *record_.since},
                                 {"job", record_.job},
                                 {"higher_is_better", record_.higher_is_better},
                                 {"flags", record_.flags},
                                 {"class_names", run.class_names()}};
  for (const auto& [name, value] : record_.flags) {
    if (!IsUtf8(value)) json["flag_bytes"][name] = HexOf(value);
  }
  Write(log_dir, json);
}

void NoteEnd(const std::string& log_dir) {
  SetEnded(log_dir, true);
}

bool NoteBegin(const std::string& log_dir) {
  const bool ended = HasEnded(log_dir);
  if (ended) SetEnded(log_dir, false);
  return ended;
}

void NoteNotBegun(const std::string& log_dir) noexcept {
  try {
    const std::optional<RunRecord> record = ReadableRecord(log_dir);
    if (record && record->ended == false) SetEnded(log_dir, true);
  } catch (const std::exception&) {
    // Why it did not begin is what is to be told.
  }
}

bool HasEnded(const std::string& log_dir) {
  const std::optional<RunRecord> record = ReadableRecord(log_dir);
  return record && record->ended.value_or(false);
}

void AwaitTraining(const std::string& log_dir) {
  NoteInterrupts("ending");
  Polling polling(fmt::format("a training in '{}'", log_dir));
  while (InterruptSignal() == 0 && !ReadRunRecord(log_dir) &&
         !HasCheckpoint(log_dir)) {
    polling.Wait();
  }
}

}  // namespace sluice
