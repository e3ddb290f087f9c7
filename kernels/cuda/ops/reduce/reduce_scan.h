// Ops along n of [outer, n, inner] that keep it, or say where on it: CumSum,
// ProdGrad, ArgMax and ArgMin.
#ifndef SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_SCAN_H_
#define SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_SCAN_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "kernels/cuda/ops/reduce/reduce.h"

namespace sluice::cuda {

// Running sums, taken in double, those of float64 as CompensatedSum
// (engine/semantics/compensated_sum.h), or in integers that wrap around; y may
// be x. Exclusive sums are those of the elements before. Numeric dtypes.
struct CumSumForm {
  AxisForm shape;
  bool exclusive = false;
  bool reverse = false;  // from the end
};
using CumSumLauncher = Status (*)(const void* x, void* y,
                                  const CumSumForm& form, cudaStream_t stream);
CumSumLauncher FindCumSum(DType dtype);

// y = dy times the product of the other elements of x's line, for a dy of
// [outer, inner]; floating dtypes. `before` has room for a double for each
// element: in y's dtype products on the way might be lost.
using ProdGradLauncher = Status (*)(const void* dy, const void* x, void* y,
                                    double* before, const AxisForm& shape,
                                    cudaStream_t stream);
ProdGradLauncher FindProdGrad(DType dtype);

// Finds the index of the largest or least of each line, or of the first NaN if
// there is one; of several equals the first. Numeric dtypes.
using ArgLauncher = Status (*)(bool least, const void* x, int64_t* y,
                               const AxisForm& shape, cudaStream_t stream);
ArgLauncher FindArg(DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_SCAN_H_
