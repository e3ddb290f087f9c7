// Rows of a table that slices belong to (SumRows, ApplySgdRows and the like).
#ifndef SLUICE_ENGINE_SEMANTICS_ROW_IDS_H_
#define SLUICE_ENGINE_SEMANTICS_ROW_IDS_H_

#include <cstdint>

namespace sluice {

// The row of a slice that belongs to none: it is left out.
inline constexpr int64_t kNoRow = -1;

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_ROW_IDS_H_
