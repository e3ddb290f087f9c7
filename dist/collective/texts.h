// Texts of any length from all workers of a collective.
#ifndef SLUICE_DIST_COLLECTIVE_TEXTS_H_
#define SLUICE_DIST_COLLECTIVE_TEXTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/collective.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// The longest text of one rank, in bytes, where every rank gets all texts and
// nothing else is said.
inline constexpr int64_t kMostText = int64_t{1} << 28;
// kDataLoss where the length that a rank states for its text is below 0 or
// above `most` bytes.
Status CheckTextLength(std::string_view what, int rank, int64_t length,
                       int64_t most = kMostText);

// Returns the texts of all ranks, by rank; kDataLoss where one is longer than
// `most` bytes. All ranks call it together, with the same `most` and `at_once`;
// it takes one collective, and one for each `at_once` bytes, 1 or more, of the
// longest text. Memory is taken for what has come, not for what is stated.
Result<std::vector<std::string>> GatherTexts(Collective& group,
                                             std::string_view what,
                                             std::string_view mine,
                                             int64_t most = kMostText,
                                             int64_t at_once = 4 << 20);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_COLLECTIVE_TEXTS_H_
