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

// Of one rank's, in bytes, where all have those of all.
inline constexpr int64_t kMostText = int64_t{1} << 28;
// kDataLoss where no text is so long, as another rank says that its is.
Status CheckTextLength(std::string_view what, int rank, int64_t length,
                       int64_t most = kMostText);

// By rank. Waits for the others, two collectives long.
Result<std::vector<std::string>> GatherTexts(Collective& group,
                                             std::string_view what,
                                             std::string_view mine);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_COLLECTIVE_TEXTS_H_
