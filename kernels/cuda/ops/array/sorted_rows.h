// Slices sorted by the row of a table that they belong to, and by their number
// within a row, so that who sums them needs no atomic operations.
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_SORTED_ROWS_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_SORTED_ROWS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "kernels/cuda/device/bad_index.h"

namespace sluice::cuda {

// A slice's key: row * slices + its number. All are different. Of the slices
// [batch, count] those of a batch have rows of their own, `size` of them: a row
// is batch * size + index. That of an index out of range, or of none, comes
// after all others: batch * size.
using RowKey = uint64_t;

struct RowSlices {
  int64_t batch = 1, size = 0, count = 0;
  // Whether an index may be kNoRow. Others that are out of range are reported.
  bool some_of_none = false;
};

// Whether keys are large enough: sizes are not astronomical.
bool SortRowsSupports(const RowSlices& slices);
size_t SortRowsWorkspace(int64_t slices);  // bytes of device memory

// The sorted keys, in the workspace. `who` is for messages.
Result<const RowKey*> SortRows(const char* who, const RowSlices& slices,
                               DType index_dtype, const void* indices,
                               void* workspace, BadIndex* bad,
                               cudaStream_t stream);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_SORTED_ROWS_H_
