// The flags of training by several processes, or on several devices. Internal
// to models/cli.
#ifndef SLUICE_MODELS_CLI_JOB_FLAGS_H_
#define SLUICE_MODELS_CLI_JOB_FLAGS_H_

#include <string>

#include "models/cli/command_flags.h"
#include "models/cli/command_line.h"

namespace sluice {

// As AddCommands does, to the command that trains.
void AddJobFlags(CLI::App* sub, CommandLine& line, GivenFlags& given);

// What is wrong with them together; empty: nothing.
std::string WrongJobFlags(const CommandLine& line, const GivenFlags& given);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_JOB_FLAGS_H_
