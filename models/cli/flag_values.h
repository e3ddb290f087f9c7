// Values of flags that are more than a number or a name. Throw Error
// (kInvalidArgument) saying what is wanted.
#ifndef SLUICE_MODELS_CLI_FLAG_VALUES_H_
#define SLUICE_MODELS_CLI_FLAG_VALUES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// "steps=100:110": the first and the last.
std::pair<int64_t, int64_t> ParseSteps(const std::string& text);

// "conv*=0.1,fc/*=10": patterns of names (models/optim/name_pattern.h) and
// factors, which are not negative.
std::vector<std::pair<std::string, double>> ParseRateFactors(
    const std::string& text);

// "3" or "auto", which is kAutomatic (models/cli/command_line.h).
int ParseInputThreads(const std::string& text);

// "20G": bytes, 1 to 2^50, or so many times 1024 (K), 1024^2 (M), ..., 1024^4
// (T).
uint64_t ParseBytes(const std::string& text);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_FLAG_VALUES_H_
