#include "models/cli/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/parse_number.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/near_misses.h"
#include "io/checkpoints/checkpoint.h"
#include "io/files/file.h"
#include "io/files/file_pattern.h"
#include "io/files/path_kind.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"
#include "models/cli/interrupt.h"
#include "models/cli/polling.h"
#include "models/train/export.h"

namespace sluice {
namespace {

constexpr char kFile[] = "run.json";
constexpr char kFormat[] = "sluice.run";

constexpr char kDataDir[] = "data-dir";
constexpr char kWeights[] = "weights";
constexpr char kReset[] = "reset";

const Flag* Find(const TrainerSpec& spec, const std::string& name) {
  for (const Flag& flag : spec.flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

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

RunRecord ParseOrThrow(const std::string& text, const std::string& path) {
  RunRecord record;
  if (const Status parsed = Parse(text, &record); !parsed.ok()) {
    throw Error(Code::kDataLoss,
                fmt::format("'{}' is no record of a training: {}", path,
                            parsed.message()));
  }
  return record;
}

// Whether the training in the folder goes on from a checkpoint: what is in that
// comes before weights to begin with.
bool HasCheckpoint(const std::string& log_dir) {
  return !CheckpointManager::ForReading(log_dir).Steps().ValueOrThrow().empty();
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

// The flags of a JSON file, and whether it is a record.
std::pair<FlagValues, bool> ReadFlags(const std::string& path) {
  const std::string text = FileSystem::Default().Read(path).ValueOrThrow();
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw Error(Code::kDataLoss,
                fmt::format("'{}' is no JSON object of flags", path));
  }
  if (json.contains("format")) return {ParseOrThrow(text, path).flags, true};
  FlagValues flags;
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) {
      flags[name] = value.get<std::string>();
    } else if (value.is_number() || value == true) {
      flags[name] = value.dump();
    } else {
      throw Error(Code::kDataLoss,
                  fmt::format("'{}': \"{}\" is {}, wanted text, a number or "
                              "true",
                              path, name, value.dump()));
    }
  }
  return {flags, false};
}

// Whether it is a pattern of files in a folder of this machine.
bool OfFiles(const std::string& value) {
  return SchemeOf(value).empty() && IsFilePattern(value) &&
         IsFolder(ParentDirectory(value)).ValueOrThrow();
}

// Whether a value from elsewhere has a place beside those that were given.
bool MayAdd(const CommandFlags& flags, const std::string& name) {
  const auto found = flags.values.find(name);
  return found != flags.values.end() && !found->second &&
         !flags.excluded.contains(name);
}

std::optional<std::string> Given(const std::string& name,
                                 const CommandFlags& flags) {
  const auto found = flags.values.find(name);
  return found == flags.values.end() ? std::nullopt : found->second;
}

// Whether the value of a flag is a path, and none of its words.
bool IsPathOf(const std::string& name, const std::string& value,
              const TrainerSpec& spec) {
  if (name == kDataDir || name == kWeights) return true;
  const Flag* own = Find(spec, name);
  return own != nullptr &&
         (own->kind == Flag::Kind::kPath || own->kind == Flag::Kind::kData) &&
         std::find(own->choices.begin(), own->choices.end(), value) ==
             own->choices.end();
}

// Whether a flag was given with another value than there was. Two paths of one
// file or folder are the same value, and so is an address that was signed anew.
bool Differs(const std::string& name, const CommandFlags& flags,
             const FlagValues& of_training, const TrainerSpec& spec) {
  const auto now = Given(name, flags);
  if (!now) return false;
  const auto then = of_training.find(name);
  if (then == of_training.end()) return true;
  if (WithAbsolutePaths({{name, *now}}, spec).at(name) == then->second) {
    return false;
  }
  if (!IsPathOf(name, *now, spec)) return true;
  std::error_code none;
  return WithoutQuery(*now) != WithoutQuery(then->second) &&
         !std::filesystem::equivalent(*now, then->second, none);
}

// That a flag was given with another value than `whose` has.
std::string NoteOfOther(const std::string& name, const std::string& now,
                        const std::string& whose, const std::string& then) {
  return fmt::format("--{} is {}, {} had {}", name, WithoutQuery(now), whose,
                     WithoutQuery(then));
}

// What the program is told of the data that were given.
RunContext OnData(const FlagValues& of_training, const CommandFlags& flags,
                  const TrainerSpec& spec) {
  RunContext run;
  run.mode = flags.train ? Mode::kTrain : Mode::kEval;
  run.data_dir = Given(kDataDir, flags).value_or("");
  if (const auto file = Given("files", flags)) run.files = {*file};
  for (const Flag& flag : spec.flags) {
    const auto then = of_training.find(flag.name);
    run.flags[flag.name] =
        Given(flag.name, flags)
            .value_or(then == of_training.end() ? flag.value : then->second);
  }
  return run;
}

// Which flags of a training are of its data alone, where others were given.
std::set<std::string> OfOtherData(const FlagValues& of_training,
                                  const CommandFlags& flags,
                                  const TrainerSpec& spec) {
  const bool other_source =
      std::any_of(spec.flags.begin(), spec.flags.end(), [&](const Flag& flag) {
        return flag.kind == Flag::Kind::kData &&
               Differs(flag.name, flags, of_training, spec);
      });
  std::set<std::string> names;
  if (other_source) {
    names.insert(kDataDir);  // others have a folder of their own
  } else if (!Differs(kDataDir, flags, of_training, spec)) {
    return names;
  }
  const RunContext run = OnData(of_training, flags, spec);
  const auto fits = [&run](const Flag& flag) {
    try {
      return !flag.fits_data || flag.fits_data(run);
    } catch (const Error&) {  // for TrainerSpec::defaults to refuse
      return true;
    }
  };
  for (const Flag& flag : spec.flags) {
    if (flag.of_data || !fits(flag)) names.insert(flag.name);
  }
  return names;
}

}  // namespace

std::optional<RunRecord> ReadRunRecord(const std::string& log_dir) {
  const std::string path = JoinPath(log_dir, kFile);
  Result<std::string> text = FileSystem::Default().Read(path);
  if (text.status().code() == Code::kNotFound) return std::nullopt;
  return ParseOrThrow(std::move(text).ValueOrThrow(), path);
}

bool IsTrainingOf(const std::string& job, const std::string& log_dir) {
  if (job.empty() || log_dir.empty()) return false;
  const std::optional<RunRecord> record = ReadableRecord(log_dir);
  return record && record->job == job;
}

void CommandFlags::Give(const std::string& name, const std::string& value) {
  values[name] = value;
  const auto [begin, end] = excludes.equal_range(name);
  for (auto other = begin; other != end; ++other) {
    excluded.insert(other->second);
  }
}

FlagValues FromConfig(const std::string& path, const CommandFlags& flags,
                      const TrainerSpec& spec,
                      std::set<std::string>* recorded) {
  auto [values, is_record] = ReadFlags(path);
  for (const auto& [name, value] : values) {
    if (flags.known.contains(name)) continue;
    const std::vector<std::string_view> known(flags.known.begin(),
                                              flags.known.end());
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}': there is no flag --{}{}", path, name,
                            NearMisses(name, known)));
  }
  const auto of_other_data =
      is_record ? OfOtherData(values, flags, spec) : std::set<std::string>();
  std::erase_if(values, [&](const auto& flag) {
    return !MayAdd(flags, flag.first) || of_other_data.contains(flag.first);
  });
  if (!is_record) return values;
  // What that training began with is not what it has trained.
  if (flags.trained) values.erase(kWeights);
  for (const auto& [name, value] : values) recorded->insert(name);
  return values;
}

FlagValues FromRecord(const std::string& log_dir, const CommandFlags& flags,
                      const TrainerSpec& spec,
                      std::vector<std::string>* notes) {
  FlagValues values;
  const auto record = ReadRunRecord(log_dir);
  if (!record) return values;
  if (record->program != spec.name) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' holds a training of {}, not of {}", log_dir,
                            record->program, spec.name));
  }
  const auto of_other_data = OfOtherData(record->flags, flags, spec);
  const bool goes_on = !flags.tries && HasCheckpoint(log_dir);
  for (const auto& [name, value] : record->flags) {
    if (!IsRecorded(name, spec, flags.train)) continue;
    if (goes_on && (name == kWeights || name == kReset)) continue;
    if (MayAdd(flags, name)) {
      if (!of_other_data.contains(name)) values[name] = value;
    } else if (Differs(name, flags, record->flags, spec)) {
      notes->push_back(NoteOfOther(name, *Given(name, flags),
                                   fmt::format("the training in '{}'", log_dir),
                                   value));
    }
  }
  return values;
}

FlagValues FromExport(const std::string& directory, const CommandFlags& flags,
                      const TrainerSpec& spec,
                      std::vector<std::string>* notes) {
  FlagValues values;
  const FlagValues of_model = ReadExportInfo(directory).flags;
  for (const auto& [name, value] : of_model) {
    const Flag* own = Find(spec, name);
    if (own == nullptr || !own->of_reading) continue;  // another program's
    if (MayAdd(flags, name)) {
      values[name] = value;
    } else if (Differs(name, flags, of_model, spec)) {
      notes->push_back(NoteOfOther(name, *Given(name, flags),
                                   fmt::format("the model in '{}'", directory),
                                   value));
    }
  }
  return values;
}

bool IsRecorded(const std::string& name, const TrainerSpec& spec, bool train) {
  // clang-format off
  static const std::set<std::string> kOfTraining = {
      "batch-size", "seed", "deterministic", "precision", "epochs", "steps",
      "optimizer", "learning-rate", "evaluate-every", "early-stopping",
      "skip-bad", "learning-rate-for", "clip", "accumulate", "freeze",
      "plateau", "plateau-factor", "overfit-batches", "compress-gradients",
      "first-bucket", "bucket", "batch-size-per-worker", "scale-learning-rate",
      "sync-batch-norm", "virtual-workers", "micro-batches", kWeights, kReset};
  // clang-format on
  return name == kDataDir || Find(spec, name) != nullptr ||
         (train && kOfTraining.contains(name));
}

FlagValues WithAbsolutePaths(FlagValues flags, const TrainerSpec& spec) {
  for (auto& [name, value] : flags) {
    std::error_code none;
    const Flag* own = Find(spec, name);
    // Such as a folder that the training is going to make. Data that are not
    // there may be a program's own words.
    const bool may_come = own != nullptr && own->kind == Flag::Kind::kPath &&
                          !value.empty() && SchemeOf(value).empty();
    if (IsPathOf(name, value, spec) &&
        (may_come || std::filesystem::exists(value, none) || OfFiles(value))) {
      value = std::filesystem::absolute(value, none);
    }
  }
  return flags;
}

void RecordRun::Begin(TrainingRun& run) {
  const std::string& log_dir = run.options().log_dir;
  const std::optional<RunRecord> before = ReadableRecord(log_dir);
  if (!before && restart_) NoteOfSetAside(log_dir);
  for (const auto& [name, value] : *found_) record_.flags[name] = value;
  const bool goes_on = HasCheckpoint(log_dir);
  if (goes_on) {
    // What it has begun with, whatever it goes on with.
    for (const char* name : {kWeights, kReset}) {
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
