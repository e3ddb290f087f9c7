// AllFinite: whether any element of several arrays, or its product with a
// scale, is infinite or NaN.
#ifndef SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_FINITE_H_
#define SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_FINITE_H_

#include <cuda_runtime.h>

#include "kernels/cuda/device/array_list.h"

namespace sluice::cuda {

// *y = false if any element of the arrays, of floating dtypes, is not finite;
// else *y stays as it is. `scale`, a device scalar that elements are multiplied
// by in float32 at least, may be null.
Status LaunchAllFinite(const ArrayList& arrays, const float* scale, bool* y,
                       cudaStream_t stream);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_FINITE_H_
