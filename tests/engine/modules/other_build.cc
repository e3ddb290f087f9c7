// With kernels/cuda/module.cc, a libsluice_cuda.so of another build: what it
// has must not be asked for.
#include <cstdlib>

#include "engine/status.h"
#include "kernels/cuda/runtime/accelerator.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/vendor/libraries.h"

namespace sluice::cuda {

void RegisterCudaKernels(KernelTable&) {
  std::abort();
}

Result<std::unique_ptr<Accelerator>> OpenCuda(int, bool) {
  std::abort();
}

std::map<std::string, std::string> FindNvidiaLibraries() {
  std::abort();
}

}  // namespace sluice::cuda
