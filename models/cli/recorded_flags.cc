#include "models/cli/recorded_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "graph/near_misses.h"
#include "io/files/file.h"
#include "io/files/file_pattern.h"
#include "io/files/path_kind.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"
#include "models/train/export.h"

namespace sluice {
namespace {

constexpr char kDataDir[] = "data-dir";
constexpr char kWeights[] = "weights";
constexpr char kReset[] = "reset";

const Flag* Find(const TrainerSpec& spec, const std::string& name) {
  for (const Flag& flag : spec.flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

// The flags of a JSON file, and whether it is a record.
std::pair<FlagValues, bool> ReadFlags(const std::string& path) {
  const std::string text = FileSystem::Default().Read(path).ValueOrThrow();
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw Error(Code::kDataLoss,
                fmt::format("'{}' is no JSON object of flags", path));
  }
  if (json.contains("format")) return {ParseRunRecord(text, path).flags, true};
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

}  // namespace sluice
