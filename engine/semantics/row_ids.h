// Rows of a table that slices belong to (SumRows, ApplySgdRows and the like).
#ifndef SLUICE_ENGINE_SEMANTICS_ROW_IDS_H_
#define SLUICE_ENGINE_SEMANTICS_ROW_IDS_H_

#include <cstdint>

namespace sluice {

// The row of a slice that belongs to none: it is left out.
inline constexpr int64_t kNoRow = -1;

// Slices of a row that are added one to another. In one sum of very many the
// last digits of each would be lost: of more, those after the first are summed
// in runs of so many, and these in double, on CPUs as SumOfMany
// (compensated_sum.h); all of that is added to the first.
inline constexpr int64_t kSlicesRun = 64;

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_ROW_IDS_H_
