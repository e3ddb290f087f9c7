// CUDA's error codes as Status.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_CHECK_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_CHECK_H_

#include <cuda_runtime.h>

#include <string_view>

#include "engine/status.h"

namespace sluice::cuda {

// The Status of a CUDA error: one line, which says what to do where something
// can be done. kUnavailable: the GPU is lost to this process, until it ends.
Status Failure(cudaError_t error, std::string_view what);

// The Status to return where a library of NVIDIA's has failed with `error`:
// libraries do not say so when the GPU is lost. Asks the default stream.
Status FailureOfLibrary(const Status& error);

// `what` is for the message: "copy to the device".
inline Status Check(cudaError_t error, std::string_view what) {
  return error == cudaSuccess ? Status() : Failure(error, what);
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_CHECK_H_
