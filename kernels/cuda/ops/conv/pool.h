// Pooling of NHWC images, and its gradients.
#ifndef SLUICE_KERNELS_CUDA_OPS_CONV_POOL_H_
#define SLUICE_KERNELS_CUDA_OPS_CONV_POOL_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "engine/dtype.h"
#include "engine/semantics/window.h"
#include "engine/status.h"

namespace sluice::cuda {

// x [images, h.input, w.input, channels] and y [images, h.output, w.output,
// channels]; no dilation.
struct PoolShape {
  int64_t images = 0, channels = 0;
  WindowDim h, w;
};

// The operands in the order of the op's record (graph/ops/pool.cc) but for
// shapes; null where it has fewer.
using PoolLauncher = Status (*)(const PoolShape& shape, const void* a,
                                const void* b, const void* c, void* result,
                                cudaStream_t stream);
// "MaxPool", "MaxPoolGrad", "MaxPoolGradWithArgmax", "MaxPoolGradGrad",
// "AvgPool" or "AvgPoolGrad", of a floating dtype; null otherwise. Sums of half
// types are taken in float and rounded once.
PoolLauncher FindPool(std::string_view op, DType dtype);

using ArgmaxPoolLauncher = Status (*)(const PoolShape& shape, const void* x,
                                      void* y, uint8_t* argmax,
                                      cudaStream_t stream);
// "MaxPoolWithArgmax", of a floating dtype; null otherwise.
ArgmaxPoolLauncher FindMaxPoolWithArgmax(DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_CONV_POOL_H_
