// Layer normalisation of the rows of x seen as [rows, width]. x, y and their
// gradients are of the dtype; scale, offset and statistics of the type it is
// computed in, float for half types.
#ifndef SLUICE_KERNELS_CUDA_OPS_NORM_LAYER_NORM_H_
#define SLUICE_KERNELS_CUDA_OPS_NORM_LAYER_NORM_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::cuda {

struct LayerNormShape {
  int64_t rows = 0, width = 0;
  double epsilon = 0;  // forward alone
};

// Device pointers, as in the graph's op.
struct LayerNormOperands {
  const void* x = nullptr;
  const void* scale = nullptr;   // [width]
  const void* offset = nullptr;  // [width]
  void* y = nullptr;
  void* mean = nullptr;     // [rows]
  void* inv_std = nullptr;  // [rows]
};
struct LayerNormGradOperands {
  const void* x = nullptr;
  const void* scale = nullptr;    // [width]
  const void* mean = nullptr;     // [rows]
  const void* inv_std = nullptr;  // [rows]
  const void* dy = nullptr;
  void* dx = nullptr;
  void* dscale = nullptr;   // [width]
  void* doffset = nullptr;  // [width]
  void* workspace = nullptr;
};

using LayerNormLauncher = Status (*)(const LayerNormShape& shape,
                                     const LayerNormOperands& operands,
                                     cudaStream_t stream);
using LayerNormGradLauncher = Status (*)(const LayerNormShape& shape,
                                         const LayerNormGradOperands& operands,
                                         cudaStream_t stream);
// The launcher for floating dtypes.
LayerNormLauncher FindLayerNorm(DType dtype);
LayerNormGradLauncher FindLayerNormGrad(DType dtype);
// Device memory, beside the operands, for the gradient.
size_t LayerNormGradWorkspace(const LayerNormShape& shape, DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_NORM_LAYER_NORM_H_
