// NVIDIA's libraries, opened at run time: libsluice_cuda.so must load where
// they are missing (our own kernels serve then) and where they lie in Python's
// packages, beside it, so that no path to them is known when it is linked.
// dlopen finds them among what the process has loaded, in the module's own
// RUNPATH (cmake/SluiceCuda.cmake) and where the system finds libraries.
#ifndef SLUICE_KERNELS_CUDA_NVIDIA_LIBRARY_H_
#define SLUICE_KERNELS_CUDA_NVIDIA_LIBRARY_H_

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/status.h"

namespace sluice::cuda {

// Never closed: threads may be in it. Unavailable with the loader's reason.
inline Result<void*> OpenLibrary(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const why = dlerror();
  return Unavailable(name + " cannot be loaded: " +
                     (why == nullptr ? "no reason given" : why));
}

// Sets `function` to what the library calls `name`.
template <typename Function>
Status FindFunction(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return {};
  return Unavailable(std::string("a library of NVIDIA's lacks ") + name +
                     "; install the version that Sluice was built with");
}

// Libraries want scratch memory aligned better than the engine's: kernels ask
// for this much more, and use it from the next multiple on.
inline constexpr size_t kScratchAlignment = 256;
inline char* AlignScratch(void* workspace) {
  const size_t over =
      reinterpret_cast<uintptr_t>(workspace) % kScratchAlignment;
  return static_cast<char*>(workspace) +
         (over == 0 ? 0 : kScratchAlignment - over);
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_NVIDIA_LIBRARY_H_
