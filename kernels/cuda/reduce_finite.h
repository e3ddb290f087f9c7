// AllFinite: whether any element of several arrays, or its product with a
// scale, is infinite or NaN.
#ifndef SLUICE_KERNELS_CUDA_REDUCE_FINITE_H_
#define SLUICE_KERNELS_CUDA_REDUCE_FINITE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::cuda {

// Arrays of one dtype that a launch looks at: kernel parameters hold no more.
struct FiniteArrays {
  static constexpr int kMost = 128;
  int count = 0;
  int64_t chunks = 0;
  const void* at[kMost] = {};
  int64_t elements[kMost] = {};
  int64_t first_chunk[kMost] = {};  // ascending
  // A device scalar that elements are multiplied by; or null.
  const float* scale = nullptr;
};

// Cuts arrays of these sizes into chunks; kMost of them at most.
FiniteArrays PlanAllFinite(std::span<const int64_t> elements);

// *y = false if any is not finite; else *y stays as it is.
using AllFiniteLauncher = Status (*)(const FiniteArrays& arrays, bool* y,
                                     cudaStream_t stream);
AllFiniteLauncher FindAllFinite(DType dtype);  // floating

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_REDUCE_FINITE_H_
