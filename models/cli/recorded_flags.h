// Values for the flags of a command that were not given: from a file, from the
// record of the training that the command goes on with or looks at, or from an
// exported model.
#ifndef SLUICE_MODELS_CLI_RECORDED_FLAGS_H_
#define SLUICE_MODELS_CLI_RECORDED_FLAGS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/cli/run_record.h"

namespace sluice {

// The flags of a command, by name without "--".
struct CommandFlags {
  bool train = false;    // the command trains
  bool trained = false;  // the command is on a trained model
  // The command trains for a trial, which begins where the training had begun
  // and saves nothing in its folder.
  bool tries = false;
  // As given; nullopt: not given.
  std::map<std::string, std::optional<std::string>> values;
  std::multimap<std::string, std::string> excludes;
  std::set<std::string> excluded;  // by what was given
  std::set<std::string> known;     // to any command

  void Give(const std::string& name, const std::string& value);
};

// Values for flags that were not given, from a JSON file: a run.json, or an
// object whose fields are flags, text, numbers, or true for a flag without a
// value. Those that only other commands have are passed over, and so are a
// run.json's weights by a command that is of what was trained, and what it has
// of its data where others were given: --data-dir, how they are read
// (Flag::of_data), and what has no meaning for the others (Flag::fits_data).
// Adds the names of those that a run.json has to `recorded`. Throws Error.
FlagValues FromConfig(const std::string& path, const CommandFlags& flags,
                      const TrainerSpec& spec, std::set<std::string>* recorded);

// Values for flags that were not given, from the record in the folder of a
// training, if there is one: flags of the model and the data and, to go on
// training, those that say how, but for the weights that it began with where
// there is a checkpoint to go on from, unless the command tries. Adds a note
// for each flag given with another value. Throws Error, also if the folder is
// another program's.
FlagValues FromRecord(const std::string& log_dir, const CommandFlags& flags,
                      const TrainerSpec& spec, std::vector<std::string>* notes);

// Values for flags that were not given, from an exported model: those that say
// how data to predict for are read (Flag::of_reading).
FlagValues FromExport(const std::string& directory, const CommandFlags& flags,
                      const TrainerSpec& spec, std::vector<std::string>* notes);

// Whether a record has the flag: those of the model and the data do and, to go
// on `train`ing, those that say how.
bool IsRecorded(const std::string& name, const TrainerSpec& spec, bool train);

// `flags` with paths that exist made absolute, since the next command may be
// run in another folder.
FlagValues WithAbsolutePaths(FlagValues flags, const TrainerSpec& spec);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_RECORDED_FLAGS_H_
