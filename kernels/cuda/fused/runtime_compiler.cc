#include "kernels/cuda/fused/runtime_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "kernels/cuda/fused/device_text.h"
#include "kernels/cuda/runtime/nvidia_library.h"

// NVRTC's interface as of CUDA 12 and 13, declared here so that building this
// needs no CUDA: https://docs.nvidia.com/cuda/nvrtc.
using nvrtcProgram = struct _nvrtcProgram*;
using nvrtcResult = int;  // 0: success

namespace sluice::cuda {

struct RuntimeCompiler::Functions {
  const char* (*ErrorString)(nvrtcResult result);
  nvrtcResult (*Version)(int* major, int* minor);
  nvrtcResult (*CountArchs)(int* count);
  nvrtcResult (*Archs)(int* archs);
  nvrtcResult (*Create)(nvrtcProgram* program, const char* text,
                        const char* name, int headers,
                        const char* const* header_texts,
                        const char* const* header_names);
  nvrtcResult (*Destroy)(nvrtcProgram* program);
  nvrtcResult (*Compile)(nvrtcProgram program, int options,
                         const char* const* option);
  nvrtcResult (*LogSize)(nvrtcProgram program, size_t* bytes);
  nvrtcResult (*Log)(nvrtcProgram program, char* log);
  nvrtcResult (*CubinSize)(nvrtcProgram program, size_t* bytes);
  nvrtcResult (*Cubin)(nvrtcProgram program, char* cubin);
};

std::vector<std::string> RuntimeCompiler::Names() {
  return {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
}

Result<const RuntimeCompiler*> RuntimeCompiler::Get() {
  static const Result<const RuntimeCompiler*>* const compiler =
      new Result<const RuntimeCompiler*>(Open(Names()));
  return *compiler;
}

Result<const RuntimeCompiler*> RuntimeCompiler::Open(
    const std::vector<std::string>& names) {
  SLUICE_ASSIGN_OR_RETURN(void* const library, OpenAnyLibrary(names));
  auto functions = std::make_unique<Functions>();
  FunctionFinder find(library);
  find("nvrtcGetErrorString", functions->ErrorString);
  find("nvrtcVersion", functions->Version);
  find("nvrtcGetNumSupportedArchs", functions->CountArchs);
  find("nvrtcGetSupportedArchs", functions->Archs);
  find("nvrtcCreateProgram", functions->Create);
  find("nvrtcDestroyProgram", functions->Destroy);
  find("nvrtcCompileProgram", functions->Compile);
  find("nvrtcGetProgramLogSize", functions->LogSize);
  find("nvrtcGetProgramLog", functions->Log);
  find("nvrtcGetCUBINSize", functions->CubinSize);
  find("nvrtcGetCUBIN", functions->Cubin);
  SLUICE_RETURN_IF_ERROR(find.status());
  auto compiler = std::make_unique<RuntimeCompiler>();
  int major = 0, minor = 0, count = 0;
  functions->Version(&major, &minor);
  compiler->version_ = fmt::format("{}.{}", major, minor);
  // NVRTC opens its builtins when it first compiles, by their name alone. In
  // Python's packages it has no RUNPATH to find them by, but what is loaded is
  // found by that name. Where there are none beside it, the loader may know
  // others, or the compilation says so.
  const std::filesystem::path beside =
      std::filesystem::path(FileOfLibrary(library)).parent_path();
  (void)OpenLibrary(
      (beside / ("libnvrtc-builtins.so." + compiler->version_)).string())
      .ok();
  functions->CountArchs(&count);
  compiler->archs_.resize(count);
  functions->Archs(compiler->archs_.data());
  compiler->f_ = functions.release();
  return compiler.release();  // never destroyed, as the library is not closed
}

bool RuntimeCompiler::Supports(int arch) const {
  return std::count(archs_.begin(), archs_.end(), arch) > 0;
}

Result<std::string> RuntimeCompiler::Compile(const std::string& text,
                                             int arch) const {
  std::vector<const char*> names, texts;
  for (const DeviceHeader& header : DeviceHeaders()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  nvrtcProgram program = nullptr;
  nvrtcResult result =
      f_->Create(&program, text.c_str(), "fused.cu",
                 static_cast<int>(names.size()), texts.data(), names.data());
  if (result != 0) {
    return Internal(fmt::format("NVRTC: {}", f_->ErrorString(result)));
  }
  const std::string target = fmt::format("--gpu-architecture=sm_{}", arch);
  const char* const options[] = {target.c_str(), "--std=c++20"};
  result = f_->Compile(program, std::size(options), options);
  std::string cubin;
  std::string log;
  size_t bytes = 0;
  if (result == 0) {
    result = f_->CubinSize(program, &bytes);
    cubin.resize(bytes);
    if (result == 0) result = f_->Cubin(program, cubin.data());
  } else if (f_->LogSize(program, &bytes) == 0) {
    log.resize(bytes);
    f_->Log(program, log.data());
    log = log.substr(0, log.find('\n'));
  }
  f_->Destroy(&program);
  if (result == 0) return cubin;
  return Internal(
      fmt::format("NVRTC {}: {}: {}", version_, f_->ErrorString(result), log));
}

}  // namespace sluice::cuda
