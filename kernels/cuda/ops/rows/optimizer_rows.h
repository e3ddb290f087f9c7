// Optimizer steps on some rows of a variable, of float32 or float64, by the
// same rules as on whole variables.
#ifndef SLUICE_KERNELS_CUDA_OPS_ROWS_OPTIMIZER_ROWS_H_
#define SLUICE_KERNELS_CUDA_OPS_ROWS_OPTIMIZER_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "engine/dtype.h"
#include "engine/semantics/optimizer.h"
#include "engine/status.h"
#include "kernels/cuda/device/bad_index.h"

namespace sluice::cuda {

// A variable [rows, width] and up to two slots in the order of the op's inputs,
// and the gradient's slices [slices, width], which belong to `slice_rows`.
struct OptimizerRows {
  int64_t rows = 0, width = 0, slices = 0;
  void* variable = nullptr;
  void* slots[2] = {nullptr, nullptr};
  const void* gradient = nullptr;
  // Device scalars.
  const float* learning_rate = nullptr;
  const int64_t* step = nullptr;  // where the rule counts them: 1 at first
  const bool* apply = nullptr;    // false leaves all as it is; or null
};

// Within SortRowsSupports, with a workspace of SortRowsWorkspace(slices). A row
// out of range is reported, and its slice left out.
using OptimizerRowsLauncher = Status (*)(const OptimizerRows& work,
                                         const OptimizerParams& params,
                                         DType index_dtype,
                                         const void* slice_rows,
                                         void* workspace, BadIndex* bad,
                                         cudaStream_t stream);
// As OptimizerRule (optimizer.h); `op` is that of whole variables.
struct OptimizerRowsRule {
  const char* op;
  int slots;
  bool counts_steps;
  OptimizerRowsLauncher f32, f64;
};
std::span<const OptimizerRowsRule> OptimizerRowsRules();

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ROWS_OPTIMIZER_ROWS_H_
