// With kernels/cuda/module.cc, a libsluice_cuda.so of this build where there is
// no GPU. Of kernels it has those that are the engine's own.
#include "engine/note.h"
#include "engine/runtime/transfer.h"
#include "engine/status.h"
#include "kernels/cuda/runtime/accelerator.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/vendor/libraries.h"

namespace sluice::cuda {

void RegisterCudaKernels(KernelTable& table) {
  RegisterTransferKernels(table, DeviceType::kCuda);
}

Result<std::unique_ptr<Accelerator>> OpenCuda(int, bool) {
  return Unavailable("there is no driver");
}

std::map<std::string, std::string> FindNvidiaLibraries() {
  Note("cuDNN is absent");
  return {{"cudnn", "/python/nvidia/cudnn/lib/libcudnn.so.9"},
          {"nvrtc", "absent: libnvrtc.so.13 cannot be loaded"}};
}

}  // namespace sluice::cuda
