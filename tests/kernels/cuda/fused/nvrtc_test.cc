// The run-time compiler and its cache. Needs NVRTC, else its tests are skipped,
// and no GPU: what is compiled is not run.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "kernels/cuda/fused/device_text.h"
#include "kernels/cuda/fused/fused_source.h"
#include "kernels/cuda/fused/runtime_compiler.h"
#include "kernels/cuda/runtime/cubin_cache.h"
#include "kernels/cuda/runtime/nvidia_library.h"
#include "tests/kernels/cuda/emulation/fused/specs.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

const cuda::RuntimeCompiler* Compiler() {
  const auto compiler = cuda::RuntimeCompiler::Get();
  if (compiler.ok()) return *compiler;
  MESSAGE("skipped: ", compiler.status().message());
  return nullptr;
}

// Of all programs, by kernel name.
std::map<std::string, std::string> Sources() {
  std::map<std::string, std::string> sources;
  for (const KernelSpec& spec : FusedSpecs()) {
    const auto work =
        cuda::FusedWorkOf(spec, cuda::FusedPack(spec), false).ValueOrThrow();
    const cuda::FusedSource source = cuda::FusedSourceOf(work.form);
    sources[source.name] = source.text;
  }
  return sources;
}

TEST_CASE("NVRTC compiles the kernels of all programs") {
  const cuda::RuntimeCompiler* compiler = Compiler();
  if (compiler == nullptr) return;
  MESSAGE("NVRTC ", compiler->version());
  CHECK(compiler->Supports(90));
  CHECK_FALSE(compiler->Supports(20));
  // Several in one text, for time's sake; the last as a program has it.
  const std::map<std::string, std::string> sources = Sources();
  std::string text;
  for (const auto& [name, source] : sources) text += source;
  const auto cubin = compiler->Compile(text, 90);
  REQUIRE_MESSAGE(cubin.ok(), cubin.status().message());
  for (const auto& [name, source] : sources) {
    CHECK(cubin->find(name) != std::string::npos);
  }
  const auto alone = compiler->Compile(sources.rbegin()->second, 80);
  REQUIRE_MESSAGE(alone.ok(), alone.status().message());
  CHECK(alone->find(sources.rbegin()->first) != std::string::npos);
  MESSAGE(sources.size() << " kernels, " << cubin->size() << " bytes");
}

// As in Python's packages, where it has no RUNPATH. Copies, since the loader
// takes two links to a file for one library.
TEST_CASE("what NVRTC opens itself is opened from beside it") {
  const cuda::RuntimeCompiler* compiler = Compiler();
  if (compiler == nullptr) return;
  const fs::path file = cuda::FileOfLibrary(
      cuda::OpenAnyLibrary(cuda::RuntimeCompiler::Names()).ValueOrThrow());
  const std::string name = "libnvrtc-builtins.so." + compiler->version();
  const fs::path builtins = file.parent_path() / name;
  if (!fs::exists(builtins)) {
    MESSAGE("skipped: there is no ", builtins.string());
    return;
  }
  const TemporaryFolder folder;
  fs::copy_file(file, folder / "libnvrtc.so.13");
  fs::copy_file(builtins, folder / name);
  const auto is_open = [&] {
    const std::string copy = folder / name;
    return dlopen(copy.c_str(), RTLD_NOLOAD | RTLD_NOW) != nullptr;
  };
  CHECK_FALSE(is_open());
  const auto opened = cuda::RuntimeCompiler::Open({folder / "libnvrtc.so.13"});
  REQUIRE_MESSAGE(opened.ok(), opened.status().message());
  CHECK(is_open());
  const auto cubin = (*opened)->Compile("__global__ void Nothing() {}", 90);
  CHECK_MESSAGE(cubin.ok(), cubin.status().message());
}

TEST_CASE("where NVRTC is missing, or is something else, it is one line") {
  const auto missing =
      cuda::RuntimeCompiler::Open({"libnvrtc.so.99", "libnvrtc.so.98"});
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().code() == Code::kUnavailable);
  CHECK(missing.status().message().find("libnvrtc.so.99 cannot be loaded: ") ==
        0);
  CHECK(missing.status().message().find('\n') == std::string::npos);
  const auto other = cuda::RuntimeCompiler::Open({"libm.so.6"});
  REQUIRE_FALSE(other.ok());
  CHECK_EQ(other.status().message(),
           "a library of NVIDIA's lacks nvrtcGetErrorString; install the "
           "version that Sluice was built with");
}

TEST_CASE("NVRTC's complaint is one line") {
  const cuda::RuntimeCompiler* compiler = Compiler();
  if (compiler == nullptr) return;
  const auto cubin = compiler->Compile("void f() { wrong", 90);
  REQUIRE_FALSE(cubin.ok());
  const std::string message = cubin.status().message();
  CHECK(message.find("fused.cu(1): error") != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("the text of device headers includes nothing but these") {
  std::set<std::string> names;
  for (const cuda::DeviceHeader& header : cuda::DeviceHeaders()) {
    names.insert(header.name);
  }
  CHECK(names.contains("engine/semantics/scalar.h"));
  CHECK(names.contains("kernels/cuda/fused/fused_device.h"));
  for (const cuda::DeviceHeader& header : cuda::DeviceHeaders()) {
    std::ifstream file(std::string(SLUICE_SOURCE_DIR "/") + header.name);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    CHECK_EQ(text, header.text);
  }
}

TEST_CASE("the cache keeps cubins, and forgets damaged ones") {
  const fs::path folder = fs::temp_directory_path() /
                          fmt::format("sluice_cubin_cache_test_{}", ::getpid());
  fs::remove_all(folder);
  const cuda::CubinCache cache(folder / "sluice");
  const std::string cubin("machine code \0 with zeros", 25);
  CHECK_FALSE(cache.Load("a"));
  cache.Store("a", cubin);
  cache.Store("b", "other");
  CHECK(cache.Load("a") == cubin);
  cache.Store("a", cubin + "!");
  CHECK(cache.Load("a") == cubin + "!");
  // Only the two are there: no temporary files.
  CHECK_EQ(std::distance(fs::directory_iterator(folder / "sluice"), {}), 2);

  const fs::path file = folder / "sluice" / "a";
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (size_t bytes : {size_t{0}, size_t{7}, size_t{24}, whole.size() - 1}) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, bytes);
    CHECK_FALSE(cache.Load("a"));
  }
  std::string changed = whole;
  for (size_t i = 0; i < whole.size(); ++i) {
    changed[i] = static_cast<char>(whole[i] ^ 1);
    std::ofstream(file, std::ios::binary) << changed;
    CHECK_FALSE(cache.Load("a"));
    changed[i] = whole[i];
  }
  std::ofstream(file, std::ios::binary) << whole + "more";
  CHECK_FALSE(cache.Load("a"));
  cache.Store("a", cubin);
  CHECK(cache.Load("a") == cubin);
  fs::remove_all(folder);
}

TEST_CASE("a cache without a place keeps nothing") {
  const cuda::CubinCache nowhere("");
  nowhere.Store("a", "cubin");
  CHECK_FALSE(nowhere.Load("a"));
  const cuda::CubinCache beneath_a_file("/dev/null/sluice");
  beneath_a_file.Store("a", "cubin");
  CHECK_FALSE(beneath_a_file.Load("a"));
}

}  // namespace
}  // namespace sluice::testing
