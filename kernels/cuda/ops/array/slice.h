// Rows that are filled up with zeros while they are converted. Other ops of
// this family only move elements (array_copy.h).
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_SLICE_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_SLICE_H_

#include <cuda_runtime.h>

#include "engine/dtype.h"
#include "engine/semantics/row_padding.h"
#include "engine/status.h"

namespace sluice::cuda {

// x and y are device pointers to rows.rows rows.
using CastPadLauncher = Status (*)(const void* x, void* y,
                                   const RowPadding& rows, cudaStream_t stream);
// The launcher from and to floating dtypes.
CastPadLauncher FindCastPad(DType from, DType to);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_SLICE_H_
