// The GPU that tests run on: the emulation, or with SLUICE_TEST_GPU=1 in the
// environment a real one through libsluice_cuda.so (scripts/gpu_check.py).
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_GPU_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_GPU_H_

#include <cstdlib>
#include <memory>

#include "engine/accelerator.h"
#include "graph/session/session.h"
#include "kernels/cuda/runtime/accelerator.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::testing {

inline bool OnRealGpu() {
  const char* wanted = std::getenv("SLUICE_TEST_GPU");
  return wanted != nullptr && wanted[0] == '1';
}

// Makes the emulation /gpu:0 and /gpu:1, unless a real one is wanted.
inline void RegisterGpu() {
  [[maybe_unused]] static const bool registered = [] {
    if (OnRealGpu()) return true;
    cuda::RegisterCudaKernels(KernelTable::Global());
    RegisterAccelerators(DeviceType::kCuda, cuda::OpenCuda);
    return true;
  }();
}

inline SessionOptions OnGpu() {
  RegisterGpu();
  SessionOptions options;
  options.devices = {"/gpu:0"};
  return options;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_GPU_H_
