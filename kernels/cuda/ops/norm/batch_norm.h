// Batch normalisation over the rows of x seen as [rows, channels], plain and
// fused with an addition and a ReLU behind it. x, y and their gradients are of
// the dtype; scale, offset and statistics of the type it is computed in, float
// for half types. Bytes moved are those that kernels/cpu/norm/batch_norm.h
// counts.
#ifndef SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_H_
#define SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::cuda {

struct BatchNormShape {
  int64_t rows = 0, channels = 0;
  double epsilon = 0;
  double momentum = 0;  // the weight of the old running statistics
};

// Device memory, beside the operands, for any of the launchers below.
size_t BatchNormWorkspace(const BatchNormShape& shape, DType dtype);

// Device pointers, as in the graph's op. A mask has one bit per element, that
// of element i in byte i / 8 at i % 8, and means a ReLU: the bit says where its
// operand is positive.
struct BatchNormOperands {
  const void* x = nullptr;
  const void* scale = nullptr;  // [channels], as the next eleven
  const void* offset = nullptr;
  // Training reads the old running statistics and writes all others. Without it
  // x is normalised by these two, or where that is given by given_inv_std in
  // place of the variance.
  const void* running_mean = nullptr;
  const void* running_variance = nullptr;
  const void* given_inv_std = nullptr;
  // Training, by the sums of x and of its squares where they are sound
  // (engine/semantics/channel_sums.h): x is then read once. Or both null.
  const void* sum = nullptr;
  const void* squares = nullptr;
  void* mean = nullptr;
  void* inv_std = nullptr;
  void* new_mean = nullptr;
  void* new_variance = nullptr;  // unbiased
  const void* addend = nullptr;  // like x, or null
  void* y = nullptr;             // like x; may be x or the addend
  uint8_t* mask = nullptr;       // (rows * channels + 7) / 8 bytes, or null
  void* workspace = nullptr;
};

// The gradient g of the normalised x, before a ReLU and addition, is dy + dy2
// where the mask's bit is set.
struct BatchNormGradOperands {
  const void* x = nullptr;
  const void* scale = nullptr;    // [channels], as the next two
  const void* mean = nullptr;     // of training
  const void* inv_std = nullptr;  // of training
  const uint8_t* mask = nullptr;  // or null: all bits set
  const void* dy = nullptr;
  const void* dy2 = nullptr;  // or null
  void* dx = nullptr;
  void* dscale = nullptr;   // [channels]
  void* doffset = nullptr;  // [channels]
  void* g = nullptr;        // like x: the addend's gradient; or null
  void* workspace = nullptr;
};

using BatchNormLauncher = Status (*)(const BatchNormShape& shape,
                                     const BatchNormOperands& operands,
                                     cudaStream_t stream);
using BatchNormGradLauncher = Status (*)(const BatchNormShape& shape,
                                         const BatchNormGradOperands& operands,
                                         cudaStream_t stream);
// The launcher for floating dtypes.
BatchNormLauncher FindBatchNorm(DType dtype);
BatchNormLauncher FindBatchNormInference(DType dtype);  // and BatchNormApply*
BatchNormGradLauncher FindBatchNormGrad(DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_NORM_BATCH_NORM_H_
