// CUDA's error codes as Status.
#ifndef SLUICE_KERNELS_CUDA_CHECK_H_
#define SLUICE_KERNELS_CUDA_CHECK_H_

#include <cuda_runtime.h>

#include <string>

#include "engine/status.h"

namespace sluice::cuda {

// `what` is for the message: "copy to the device".
inline Status Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  const Code code = error == cudaErrorMemoryAllocation
                        ? Code::kResourceExhausted
                        : Code::kInternal;
  return Status(
      code, std::string("CUDA, ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_CHECK_H_
