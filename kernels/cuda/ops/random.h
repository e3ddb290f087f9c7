// Random tensors and dropout, from the streams of engine/semantics/random.h:
// the numbers that the CPU draws. Uniform numbers and dropout's masks are the
// same bits.
#ifndef SLUICE_KERNELS_CUDA_OPS_RANDOM_H_
#define SLUICE_KERNELS_CUDA_OPS_RANDOM_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "engine/dtype.h"
#include "engine/kernel.h"
#include "engine/status.h"

namespace sluice::cuda {

// What numbers to draw.
struct DrawParams {
  uint64_t name_hash = 0;  // HashName of the op's original name
  double a = 0, b = 1;     // lo and hi, or mean and deviation
  int64_t lo = 0, hi = 1;  // of integers, in place of a and b
  int64_t first = 0;       // of the stream: what element 0 is, kRandomAlignment
};

// n elements of y. `key` is in device memory.
using DrawLauncher = Status (*)(const DrawParams& params, const StepKey* key,
                                void* y, int64_t n, cudaStream_t stream);
// "RandomUniform", of a floating dtype, int32 or int64; "RandomNormal" or
// "TruncatedNormal", of a floating dtype; null otherwise.
DrawLauncher FindDraw(std::string_view op, DType dtype);

struct DropoutParams {
  uint64_t name_hash = 0;
  double rate = 0;  // in [0, 1)
};

// Drops elements of x[n]; mask says which were kept. y may be x. `key` is in
// device memory.
using DropoutLauncher = Status (*)(const DropoutParams& params,
                                   const StepKey* key, const void* x, void* y,
                                   bool* mask, int64_t n, cudaStream_t stream);
DropoutLauncher FindDropout(DType dtype);  // floating

// dx = mask ? dy / (1 - rate) : 0. dx may be dy.
using DropoutGradLauncher = Status (*)(double rate, const void* dy,
                                       const bool* mask, void* dx, int64_t n,
                                       cudaStream_t stream);
DropoutGradLauncher FindDropoutGrad(DType dtype);  // floating

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_RANDOM_H_
