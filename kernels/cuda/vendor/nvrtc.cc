// The kernels of Fused and FusedSum that are compiled for the GPU at hand when
// a Plan is made: once per process, and once per machine (cubin_cache.h).
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <optional>
#include <string>

#include "engine/note.h"
#include "engine/thread_annotations.h"
#include "kernels/cuda/fused/device_text.h"
#include "kernels/cuda/fused/fused.h"
#include "kernels/cuda/fused/fused_source.h"
#include "kernels/cuda/fused/runtime_compiler.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/cubin_cache.h"
#include "kernels/cuda/runtime/fingerprint.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/user_cache.h"

namespace sluice::cuda {
namespace {

// Null where NVRTC is missing, which is said once.
const RuntimeCompiler* Compiler() {
  static const RuntimeCompiler* const compiler =
      []() -> const RuntimeCompiler* {
    const Result<const RuntimeCompiler*> opened = RuntimeCompiler::Get();
    if (opened.ok()) return *opened;
    Note(opened.status().message() +
         "; fused programs are interpreted, slower");
    return nullptr;
  }();
  return compiler;
}

// Of the current device, 90 for 9.0.
Result<int> Arch() {
  int device = 0, major = 0, minor = 0;
  SLUICE_RETURN_IF_ERROR(Check(cudaGetDevice(&device), "asking for the GPU"));
  for (const auto& [value, attribute] :
       {std::pair(&major, cudaDevAttrComputeCapabilityMajor),
        std::pair(&minor, cudaDevAttrComputeCapabilityMinor)}) {
    SLUICE_RETURN_IF_ERROR(
        Check(cudaDeviceGetAttribute(value, attribute, device),
              "asking for a GPU's compute capability"));
  }
  return 10 * major + minor;
}

// A file's name, by all that the code depends on.
std::string KeyOf(const FusedSource& source, int arch) {
  uint64_t hash = Fingerprint(Compiler()->version());
  for (const DeviceHeader& header : DeviceHeaders()) {
    hash = Fingerprint(header.text, hash);
  }
  return fmt::format("{}_sm{}_{:016x}.cubin", source.name, arch,
                     Fingerprint(source.text, hash));
}

// The library stays loaded, for all devices.
Result<FusedKernel> Load(const std::string& cubin, const std::string& name) {
  cudaLibrary_t library = nullptr;
  SLUICE_RETURN_IF_ERROR(
      Check(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0,
                                nullptr, nullptr, 0),
            "loading a generated kernel"));
  cudaKernel_t kernel = nullptr;
  SLUICE_RETURN_IF_ERROR(
      Check(cudaLibraryGetKernel(&kernel, library, name.c_str()),
            "finding a generated kernel"));
  // CUDA launches what either type points to.
  return reinterpret_cast<FusedKernel>(kernel);
}

Result<FusedKernel> LoadOrCompile(const FusedSource& source, int arch) {
  const CubinCache cache(UserCacheFolder());
  const std::string key = KeyOf(source, arch);
  if (const std::optional<std::string> cubin = cache.Load(key)) {
    Result<FusedKernel> kernel = Load(*cubin, source.name);
    if (kernel.ok()) return kernel;
    static_cast<void>(cudaGetLastError());  // forgotten: it is made anew
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string cubin,
                          Compiler()->Compile(source.text, arch));
  cache.Store(key, cubin);
  return Load(cubin, source.name);
}

Result<FusedKernel> Find(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const FusedWork work,
                          FusedWorkOf(spec, FusedPack(spec), /*states=*/false));
  SLUICE_ASSIGN_OR_RETURN(const int arch, Arch());
  const FusedSource source = FusedSourceOf(work.form);
  static Mutex mutex;
  static auto* const kernels =
      new std::map<std::pair<std::string, int>, FusedKernel>;
  MutexLock lock(mutex);
  FusedKernel& kernel = (*kernels)[{source.name, arch}];
  if (kernel == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(kernel, LoadOrCompile(source, arch));
  }
  return kernel;
}

bool Has(const KernelSpec&) {
  if (Compiler() == nullptr) return false;
  const Result<int> arch = Arch();
  if (!arch.ok()) return false;
  if (Compiler()->Supports(*arch)) return true;
  static std::atomic<bool> told = false;
  NoteOnce(told, fmt::format("NVRTC {} does not know compute capability "
                             "{}.{}; fused programs are interpreted, slower",
                             Compiler()->version(), *arch / 10, *arch % 10));
  return false;
}

}  // namespace

void RegisterNvrtcKernels(KernelTable& table) {
  RegisterGeneratedFusedKernels(table, "nvrtc", Has, Find);
}

}  // namespace sluice::cuda
