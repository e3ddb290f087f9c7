#include "kernels/cuda/vendor/libraries.h"

#include "kernels/cuda/fused/runtime_compiler.h"
#include "kernels/cuda/runtime/nvidia_library.h"
#include "kernels/cuda/vendor/cublas_lt.h"
#if SLUICE_HAVE_CUDNN
#include "kernels/cuda/vendor/cudnn.h"
#endif
#if SLUICE_HAVE_NCCL
#include "kernels/cuda/vendor/nccl.h"
#endif

namespace sluice::cuda {

std::map<std::string, std::string> FindNvidiaLibraries() {
  const auto place = [](const std::vector<std::string>& names) {
    const Result<void*> library = OpenAnyLibrary(names);
    return library.ok() ? FileOfLibrary(*library)
                        : "absent: " + library.status().message();
  };
  return {
    {"cublaslt", place({CublasLtFile()})},
#if SLUICE_HAVE_CUDNN
        {"cudnn", place({CudnnFile()})},
#else
        {"cudnn", "absent: this was built without its headers"},
#endif
#if SLUICE_HAVE_NCCL
        {"nccl", place({kNcclFile})},
#else
        {"nccl", "absent: this was built without its headers"},
#endif
    {
      "nvrtc", place(RuntimeCompiler::Names())
    }
  };
}

}  // namespace sluice::cuda
