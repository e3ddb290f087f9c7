// Suggestions for a name that was mistyped.
#ifndef SLUICE_GRAPH_NEAR_MISSES_H_
#define SLUICE_GRAPH_NEAR_MISSES_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// "; did you mean 'MatMul' or 'MatMulBias'?": at most three of the names, the
// nearest first, by the letters (of either case) that were left out, added,
// exchanged or swapped, or because one name is part of the other. Empty where
// none is near.
std::string NearMisses(std::string_view mistyped,
                       const std::vector<std::string_view>& names);

}  // namespace sluice

#endif  // SLUICE_GRAPH_NEAR_MISSES_H_
