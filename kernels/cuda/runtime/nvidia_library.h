// NVIDIA's libraries, opened at run time: libsluice_cuda.so must load where
// they are missing (our own kernels serve then) and where they lie in Python's
// packages, so that no path to them is known when it is linked.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_NVIDIA_LIBRARY_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_NVIDIA_LIBRARY_H_

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/note.h"
#include "engine/status.h"
#include "kernels/cuda/runtime/library_folders.h"

namespace sluice::cuda {

// Opens a library by its file's name: what the system's loader finds first
// (among what the process has loaded, in LD_LIBRARY_PATH, in the module's own
// RUNPATH, which cmake/SluiceCuda.cmake sets, in the system's folders), else
// the first that can be loaded in LibraryFolders. What a library opens itself
// it mostly finds beside it, by a RUNPATH of its own; NVRTC may have none
// (runtime_compiler.cc). It is never closed: threads may be in it. Unavailable
// says in one line why there is none.
Result<void*> OpenLibrary(
    const std::string& name,
    const LibraryEnvironment& environment = LibraryEnvironment::OfProcess());

// The first of several names that can be opened; the error is the first's.
Result<void*> OpenAnyLibrary(const std::vector<std::string>& names);

// The file that an open library is.
std::string FileOfLibrary(void* library);

// Sets pointers to a library's functions.
class FunctionFinder {
 public:
  explicit FunctionFinder(void* library) : library_(library) {}

  // Sets `function` to what the library calls `name`.
  template <typename Function>
  void operator()(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function != nullptr || !status_.ok()) return;
    status_ = Unavailable(std::string("a library of NVIDIA's lacks ") + name +
                          "; install the version that Sluice was built with");
  }
  // Ok, or the first function of those looked for that is missing.
  const Status& status() const { return status_; }

 private:
  void* library_;
  Status status_;
};

// A library's functions, a struct of pointers that set(finder, functions) sets.
// Null where something is missing, which is said with what follows from it:
// "; Sluice's own convolutions are used, slower".
template <typename Functions, typename Set>
std::unique_ptr<const Functions> FunctionsOrNull(const std::string& name,
                                                 const char* what_follows,
                                                 Set set) {
  const Result<void*> library = OpenLibrary(name);
  Status status = library.status();
  Functions functions;
  if (library.ok()) {
    FunctionFinder find(*library);
    set(find, functions);
    status = find.status();
  }
  if (status.ok()) return std::make_unique<const Functions>(functions);
  Note(status.message() + "; " + what_follows);
  return nullptr;
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

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_NVIDIA_LIBRARY_H_
