// The numbers of an optimizer for this step, as its kernels read them.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_OPTIMIZER_STEP_H_
#define SLUICE_KERNELS_CUDA_DEVICE_OPTIMIZER_STEP_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/semantics/optimizer.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

// Every thread of the block must come here. `step` is null where the rule does
// not count them. Needs 2 * sizeof(T) of the block's shared memory.
template <typename T>
__device__ optimizer::Update<T> UpdateOfStep(const OptimizerParams& params,
                                             const float* learning_rate,
                                             const int64_t* step) {
  T correction1 = 1, correction2 = 1;
  if (step != nullptr) {
    // Powers in double are long work: one thread's is enough.
    T* corrections = SharedMemory<T>();
    if (threadIdx.x == 0) {
      corrections[0] = optimizer::Correction<T>(params.beta1, *step);
      corrections[1] = optimizer::Correction<T>(params.beta2, *step);
    }
    Barrier();  // thread 0 has written them
    correction1 = corrections[0];
    correction2 = corrections[1];
  }
  return optimizer::UpdateOf<T>(params, static_cast<T>(*learning_rate),
                                correction1, correction2);
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_OPTIMIZER_STEP_H_
