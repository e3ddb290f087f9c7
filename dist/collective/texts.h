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

// The longest text of one rank, in bytes, where every rank gets all texts.
inline constexpr int64_t kMostText = int64_t{1} << 28;
// kDataLoss where the length that a rank states for its text is below 0 or
// above `most` bytes.
Status CheckTextLength(std::string_view what, int rank, int64_t length,
                       int64_t most = kMostText);

// Returns the texts of all ranks, by rank. All ranks call it together; it takes
// two collectives.
Result<std::vector<std::string>> GatherTexts(Collective& group,
                                             std::string_view what,
                                             std::string_view mine);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_COLLECTIVE_TEXTS_H_
