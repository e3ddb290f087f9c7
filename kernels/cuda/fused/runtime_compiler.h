// NVRTC, NVIDIA's run-time compiler of CUDA C++. It is opened when first asked
// for and needs neither a GPU nor headers: it is given ours as text.
#ifndef SLUICE_KERNELS_CUDA_FUSED_RUNTIME_COMPILER_H_
#define SLUICE_KERNELS_CUDA_FUSED_RUNTIME_COMPILER_H_

#include <string>
#include <vector>

#include "engine/status.h"

namespace sluice::cuda {

class RuntimeCompiler {
 public:
  // The process's compiler. kUnavailable in one line where there is none: it is
  // looked for where the module's other libraries are (nvidia_library.h).
  static Result<const RuntimeCompiler*> Get();
  // The compiler in the first of these libraries that can be opened, for good.
  static Result<const RuntimeCompiler*> Open(
      const std::vector<std::string>& names);
  // The names that NVRTC's file may have, newest first.
  static std::vector<std::string> Names();

  const std::string& version() const { return version_; }  // "13.0"
  // Whether it makes code for compute capability `arch`, 90 for 9.0.
  bool Supports(int arch) const;
  // Machine code (a cubin). An error is the compiler's first message.
  Result<std::string> Compile(const std::string& text, int arch) const;

 private:
  struct Functions;

  const Functions* f_ = nullptr;
  std::string version_;
  std::vector<int> archs_;
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_FUSED_RUNTIME_COMPILER_H_
