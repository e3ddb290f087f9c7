// Optimizer steps: one launch for all variables of a model, of float32 or
// float64. What changes from step to step is read from device memory, so that a
// launch can be captured once and replayed.
#ifndef SLUICE_KERNELS_CUDA_OPS_OPTIMIZER_H_
#define SLUICE_KERNELS_CUDA_OPS_OPTIMIZER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/dtype.h"
#include "engine/semantics/optimizer.h"
#include "engine/status.h"

namespace sluice::cuda {

// One variable, its gradient and up to two slots in the order of the op's
// inputs (ApplyAdam: m, v), null where the op has none.
struct OptimizerTensor {
  void* variable = nullptr;
  void* slots[2] = {nullptr, nullptr};
  const void* gradient = nullptr;
  DType gradient_dtype = DType::kFloat32;  // the variable's or a half one
  int64_t elements = 0;
  int64_t first_chunk = 0;  // PlanOptimizer fills it in
};

// Cuts the variables into chunks, which blocks take one at a time, and returns
// how many there are.
int64_t PlanOptimizer(std::span<OptimizerTensor> tensors);

struct OptimizerList {
  const OptimizerTensor* tensors = nullptr;  // planned, in device memory
  int count = 0;
  int64_t chunks = 0;
  // Device scalars.
  const float* learning_rate = nullptr;
  const int64_t* step = nullptr;  // of ApplyAdam and ApplyAdamW: 1 at first
  const bool* apply = nullptr;    // false leaves all as it is; or null
  // What gradients are multiplied by, before their decay; or null.
  const float* gradient_scale = nullptr;
};

using OptimizerLauncher = Status (*)(const OptimizerList& list,
                                     const OptimizerParams& params,
                                     cudaStream_t stream);
// Of the graph's op for one variable, "ApplyMomentum", or for a list,
// "ApplyMomentumList". Null if there is none, or for another dtype.
OptimizerLauncher FindOptimizer(std::string_view op, DType dtype);
// How many slots each of its variables has.
int OptimizerSlots(std::string_view op);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_OPTIMIZER_H_
