// Facts about shapes, known when a step is prepared, as tensors.
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_SHAPE_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_SHAPE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/shape.h"
#include "engine/status.h"

namespace sluice::cuda {

// y = the dimensions.
Status WriteShape(const Shape& dims, int64_t* y, cudaStream_t stream);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_SHAPE_H_
