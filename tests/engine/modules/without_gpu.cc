// With kernels/cuda/module.cc, a libsluice_cuda.so of this build where there is
// no GPU.
#include "engine/status.h"
#include "kernels/cuda/runtime/accelerator.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/vendor/libraries.h"

namespace sluice::cuda {

void RegisterCudaKernels(KernelTable&) {}

Result<std::unique_ptr<Accelerator>> OpenCuda(int, bool) {
  return Unavailable("there is no driver");
}

std::map<std::string, std::string> FindNvidiaLibraries() {
  return {{"cudnn", "/python/nvidia/cudnn/lib/libcudnn.so.9"},
          {"nvrtc", "absent: libnvrtc.so.13 cannot be loaded"}};
}

}  // namespace sluice::cuda
