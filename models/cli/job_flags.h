// The flags of training by several processes, or on several devices. Internal
// to models/cli.
#ifndef SLUICE_MODELS_CLI_JOB_FLAGS_H_
#define SLUICE_MODELS_CLI_JOB_FLAGS_H_

#include <string>

#include "models/cli/command_flags.h"
#include "models/cli/command_line.h"

namespace sluice {

// As AddCommands does: to a command that several processes do together, how
// they meet; to one that does training steps also how they share these out; and
// to the one that trains all of it.
void AddGroupFlags(CLI::App* sub, CommandLine& line);
void AddStepFlags(CLI::App* sub, CommandLine& line, GivenFlags& given);
void AddJobFlags(CLI::App* sub, CommandLine& line, GivenFlags& given);

// What is wrong with them together; empty: nothing.
std::string WrongJobFlags(const CommandLine& line, const GivenFlags& given);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_JOB_FLAGS_H_
