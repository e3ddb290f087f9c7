// The program's flags of its learning rate, beside those that put another in
// its place. Internal to models/cli.
#ifndef SLUICE_MODELS_CLI_RATE_FLAGS_H_
#define SLUICE_MODELS_CLI_RATE_FLAGS_H_

#include <cstdint>
#include <map>
#include <string>

#include "models/cli/command_line.h"

namespace sluice {

// Where a flag is set: on the command line or in a --config of flags, by a
// person; or in the record of a training. Records have the program's flags
// whether these were given or not: what is no other than their default there is
// not set.
enum class FlagSource : uint8_t { kGiven, kRecorded };

// Beside --optimizer the program's rate is kept where one of its flags says how
// high it is (Flag::Rate::kHeight): then sets flags->keeps_rate. What is wrong,
// or "": a flag was given that would do nothing.
std::string WrongRateFlags(const TrainerSpec& spec,
                           const std::map<std::string, FlagSource>& set,
                           OptimizerFlags* flags);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_RATE_FLAGS_H_
