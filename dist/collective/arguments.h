// What may be asked of a collective, whoever does it.
#ifndef SLUICE_DIST_COLLECTIVE_ARGUMENTS_H_
#define SLUICE_DIST_COLLECTIVE_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/reduction.h"
#include "engine/status.h"

namespace sluice::dist {

// All are kInvalidArgument for what it may not.

// Of a sum or mean of so many elements.
Status CheckReduction(DType dtype, int64_t count, Reduction how);
// Of so many elements in rows of `row`.
Status CheckRows(int64_t count, int64_t row);
// Of so many bytes of each rank, or for each.
Status CheckEach(int64_t each);
// Of so many bytes of rank `root` of `size`.
Status CheckRoot(int64_t bytes, int root, int size);
// Of so many `sums` of a tree's (Collective::SumTree), by rank `rank` of
// `size`.
Status CheckTree(DType dtype, int64_t leaves, size_t sums, int64_t count,
                 int rank, int size);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_ARGUMENTS_H_
