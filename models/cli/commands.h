// The commands of a training program, one file each. Internal to models/cli.
#ifndef SLUICE_MODELS_CLI_COMMANDS_H_
#define SLUICE_MODELS_CLI_COMMANDS_H_

#include "models/cli/command_line.h"
#include "models/train/workers/workers.h"

namespace sluice::commands {

// The processes that do the command together.
inline Workers WorkersOf(const CommandLine& line) {
  return Workers(line.training.session.collective.get());
}
// Whether this is the one of them that speaks.
inline bool Leads(const CommandLine& line) {
  return WorkersOf(line).leads();
}

// Each does what its command line says, prints results to stdout and returns
// the exit code. Throws Error.
int Train(const TrainerSpec& spec, const CommandLine& line);
int Evaluate(const TrainerSpec& spec, const CommandLine& line);
// Each checkpoint that a training saves meanwhile, the newest first, until it
// has ended.
int Follow(const TrainerSpec& spec, const CommandLine& line);
int Predict(const TrainerSpec& spec, const CommandLine& line);
int Export(const TrainerSpec& spec, const CommandLine& line);
int Bench(const TrainerSpec& spec, const CommandLine& line);

}  // namespace sluice::commands

#endif  // SLUICE_MODELS_CLI_COMMANDS_H_
