// Checks the arguments of a collective, whatever implements it.
#ifndef SLUICE_DIST_COLLECTIVE_ARGUMENTS_H_
#define SLUICE_DIST_COLLECTIVE_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/reduction.h"
#include "engine/status.h"

namespace sluice::dist {

// Each check is kInvalidArgument where the arguments may not be.

// Checks a sum or mean of `count` elements.
Status CheckReduction(DType dtype, int64_t count, Reduction how);
// Checks `count` elements in rows of `row`.
Status CheckRows(int64_t count, int64_t row);
// Checks a size of `each` bytes from each rank, or for each.
Status CheckEach(int64_t each);
// Checks `bytes` bytes from rank `root` of `size`.
Status CheckRoot(int64_t bytes, int root, int size);
// Checks that rank `rank` of `size` gives as many `sums`, of `count` elements
// each, as a tree of `leaves` wants (Collective::SumTree).
Status CheckTree(DType dtype, int64_t leaves, size_t sums, int64_t count,
                 int rank, int size);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_ARGUMENTS_H_
