// Optimizer steps: one launch for all variables of a model, of float32 or
// float64. What changes from step to step is read from device memory, so that a
// launch can be captured once and replayed.
#ifndef SLUICE_KERNELS_CUDA_OPS_OPTIMIZER_H_
#define SLUICE_KERNELS_CUDA_OPS_OPTIMIZER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

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
  const int64_t* step = nullptr;  // where the rule counts them: 1 at first
  const bool* apply = nullptr;    // false leaves all as it is; or null
  // The factor for gradients, before their decay; or null.
  const float* gradient_scale = nullptr;
};

using OptimizerLauncher = Status (*)(const OptimizerList& list,
                                     const OptimizerParams& params,
                                     cudaStream_t stream);
// The rule of an op for one variable, and of the op for a list.
struct OptimizerRule {
  const char* op;     // of one variable
  int slots;          // of each variable
  bool counts_steps;  // OptimizerList::step is read
  OptimizerLauncher f32, f64;

  // The launcher for the variables' dtype; null if there is none.
  OptimizerLauncher launcher(DType dtype) const {
    return dtype == DType::kFloat32   ? f32
           : dtype == DType::kFloat64 ? f64
                                      : nullptr;
  }
};
// All the rules.
std::span<const OptimizerRule> OptimizerRules();

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_OPTIMIZER_H_
