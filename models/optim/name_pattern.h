// Patterns that choose variables by name: "fc/*", "layer4/*/scale".
//
//   *     any characters, also none, also '/'
//   ?     one character (one byte)
//   else  itself
#ifndef SLUICE_MODELS_OPTIM_NAME_PATTERN_H_
#define SLUICE_MODELS_OPTIM_NAME_PATTERN_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Whether the whole name matches the pattern.
bool MatchesPattern(std::string_view name, std::string_view pattern);

// Whether the name matches one of `patterns`, which are separated by commas.
bool MatchesAny(std::string_view name, std::string_view patterns);

// Those of `names`, in their order, that match one of `patterns`, which are
// separated by commas; none for "". kInvalidArgument for an empty pattern
// beside a comma, and for a pattern that matches none of the names: the error
// then lists some of them.
Result<std::vector<std::string>> SelectNames(
    std::string_view patterns, const std::vector<std::string>& names);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_NAME_PATTERN_H_
