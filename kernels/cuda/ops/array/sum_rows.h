// What slices of one row of a table add up to, at the first of them.
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_SUM_ROWS_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_SUM_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "kernels/cuda/device/bad_index.h"

namespace sluice::cuda {

// `slices` of `width` elements, of rows in [0, limit).
struct SumRowsShape {
  int64_t slices = 0, width = 0, limit = 0;
};
// The op SumRows, of float32 and float64, within SortRowsSupports and with a
// workspace of SortRowsWorkspace(slices). A row out of range is reported, and
// becomes none.
Status SumRows(const SumRowsShape& shape, DType index_dtype, const void* rows,
               DType dtype, const void* values, void* first_rows, void* sums,
               void* workspace, BadIndex* bad, cudaStream_t stream);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_SUM_ROWS_H_
