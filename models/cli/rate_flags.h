// Checks the program's flags of its learning rate against the flags that
// replace it. Internal to models/cli.
#ifndef SLUICE_MODELS_CLI_RATE_FLAGS_H_
#define SLUICE_MODELS_CLI_RATE_FLAGS_H_

#include <cstdint>
#include <map>
#include <string>

#include "models/cli/command_line.h"

namespace sluice {

// The source of a flag's value: a person, on the command line or in a --config
// of flags; or the record of a training. Records have the program's flags
// whether these were given or not: a flag with its default there is not set.
enum class FlagSource : uint8_t { kGiven, kRecorded };

// With --optimizer the program's rate is kept if one of its flags says how high
// it is (Flag::Rate::kHeight): then sets flags->keeps_rate. Returns an error
// text if a flag was given that would do nothing, or "".
std::string WrongRateFlags(const TrainerSpec& spec,
                           const std::map<std::string, FlagSource>& set,
                           OptimizerFlags* flags);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_RATE_FLAGS_H_
