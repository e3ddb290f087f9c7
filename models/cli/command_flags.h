// The flags of a training program's commands. Internal to
// models/cli/command_line.cc.
#ifndef SLUICE_MODELS_CLI_COMMAND_FLAGS_H_
#define SLUICE_MODELS_CLI_COMMAND_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/cli/command_line.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sluice {

// A --device: CommandLine::gpu_of_process.
inline constexpr std::string_view kGpuOfProcess = "/gpu";

// What flags were set to whose defaults come from elsewhere: the spec, or other
// flags.
struct GivenFlags {
  std::optional<double> epochs;
  std::optional<int64_t> batch_size;
  std::string profile, device, variables, precision, compress, config;
};

// Adds train, eval, predict, export and bench with their flags, which are
// written to `line` and `given` as `app` reads them; all must outlive it.
void AddCommands(const TrainerSpec& spec, CLI::App& app, CommandLine& line,
                 GivenFlags& given);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_COMMAND_FLAGS_H_
