// What libsluice_cuda.so exports: the function that the engine calls when it
// loads it (engine/module.h).
#include "engine/module.h"

#include <cstring>

#include "kernels/cuda/runtime/accelerator.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/vendor/libraries.h"
#if SLUICE_HAVE_NCCL
#include "kernels/cuda/vendor/nccl_ranks.h"
#endif

extern "C" __attribute__((visibility("default"))) const char*
sluice_module_load(const sluice::ModuleHost& host) {
  if (std::strcmp(host.build, SLUICE_BUILD_ID) != 0) {
    return "it is of another build (" SLUICE_BUILD_ID
           "); build both from the same sources";
  }
  sluice::cuda::RegisterCudaKernels(*host.kernels);
  host.register_accelerators(sluice::DeviceType::kCuda, sluice::cuda::OpenCuda);
#if SLUICE_HAVE_NCCL
  host.register_device_groups(sluice::DeviceType::kCuda,
                              &sluice::cuda::NcclGroups());
#endif
  *host.libraries = sluice::cuda::FindNvidiaLibraries;
  // This is the program's own where both use one libsluice.so: that knows whom
  // to tell, and told of itself it would call itself without end.
  if (host.note != &sluice::Note) sluice::SetNotes(host.note);
  return nullptr;
}
