// Cross-entropy losses and their gradients.
#ifndef SLUICE_KERNELS_CUDA_OPS_REDUCE_LOSS_H_
#define SLUICE_KERNELS_CUDA_OPS_REDUCE_LOSS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "kernels/cuda/device/bad_index.h"
#include "kernels/cuda/ops/elementwise/elementwise.h"

namespace sluice::cuda {

struct CrossEntropyShape {
  int64_t rows = 0, classes = 0;
  double smoothing = 0;  // of the labels
};

// Device pointers to elements of the logits' dtype unless said otherwise; null
// for what an op does not have. With `loss` the op is the loss, with `dlogits`
// its gradient, with both both at once.
struct CrossEntropyOperands {
  const void* logits = nullptr;  // [rows, classes]
  const void* labels = nullptr;  // the same, or [rows] of classes
  const void* max = nullptr;     // [rows], for the gradient alone
  const void* scale = nullptr;   // [rows], the same: 1 / sum(exp(x - max))
  const void* dloss = nullptr;   // [rows], for a gradient
  void* dlogits = nullptr;       // [rows, classes], may be the logits
  void* loss = nullptr;          // [rows]
  void* max_out = nullptr;       // [rows], with the loss
  void* scale_out = nullptr;     // [rows], with the loss
  BadIndex* bad = nullptr;       // with labels that are classes
};

using CrossEntropyLauncher = Status (*)(const CrossEntropyShape& shape,
                                        const CrossEntropyOperands& operands,
                                        cudaStream_t stream);
// SoftmaxCrossEntropy of a floating dtype, and SparseSoftmaxCrossEntropy, whose
// labels are int32 or int64. A label that is no class is reported to `bad`. The
// row's loss is then NaN and its gradient zero, so that variables which the
// step goes on to update are not lost.
CrossEntropyLauncher FindCrossEntropy(DType dtype);
CrossEntropyLauncher FindSparseCrossEntropy(DType dtype, DType labels);

// Elementwise, of logits and labels; floating dtypes.
BinaryLauncher FindSigmoidCrossEntropy(DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_REDUCE_LOSS_H_
