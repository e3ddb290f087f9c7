// Writes to variables: Assign, AssignList, AssignAdd and AssignSub.
#ifndef SLUICE_KERNELS_CUDA_OPS_STATE_H_
#define SLUICE_KERNELS_CUDA_OPS_STATE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "kernels/cuda/device/array_list.h"

namespace sluice::cuda {

// variable = value, unless `apply`, in device memory, is false. Null: always.
// value may be the variable.
Status AssignBytes(const bool* apply, const void* value, void* variable,
                   size_t bytes, cudaStream_t stream);

// AssignBytes for the arrays of a list, whose elements are bytes; `apply` is
// not null.
Status AssignListed(const bool* apply, const ArrayList& list,
                    cudaStream_t stream);

// variable = variable + sign * value for n elements, likewise; sign is 1 or -1.
using AccumulateLauncher = Status (*)(const bool* apply, int sign,
                                      const void* value, void* variable,
                                      int64_t n, cudaStream_t stream);
AccumulateLauncher FindAccumulate(DType dtype);  // numeric

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_STATE_H_
