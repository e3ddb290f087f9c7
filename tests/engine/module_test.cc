// Programs beside a libsluice_cuda.so that is not theirs: one line, code 1. And
// what one of theirs says and makes.
#include "engine/module.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/rendezvous.h"
#include "engine/runtime/transfer.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/sanitizers.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

// What a copy of the tool says where `module` lies beside it. One that does not
// end is killed, and ends the test.
Outcome WholeDoctor(const fs::path& module,
                    const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  fs::copy_file(fs::path(SLUICE_BIN_DIR) / "sluice", folder / "sluice");
  if (!module.empty()) {
    fs::copy_file(module, folder / "libsluice_cuda.so");
  }
  Outcome outcome = RunProgram(folder / "sluice", arguments);
  REQUIRE_EQ(outcome.code, 0);
  std::string& text = outcome.out;
  // The folder differs from run to run.
  for (size_t at = text.find(folder.path()); at != std::string::npos;
       at = text.find(folder.path())) {
    text.erase(at, folder.path().size());
  }
  return outcome;
}

std::string Doctor(const fs::path& module) {
  const std::string text = WholeDoctor(module, {"doctor"}).out;
  const size_t begin = text.find("gpu  ");
  REQUIRE(begin != std::string::npos);
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST_CASE("a module that cannot be used is named, with the reason") {
  CHECK(
      Contains(Doctor(""),
               "none: cannot load libsluice_cuda.so: it is neither beside the "
               "program nor installed; build it with the preset cuda, or use "
               "/cpu:0"));
  CHECK(Contains(Doctor(SLUICE_OTHER_BUILD),
                 "none: cannot use libsluice_cuda.so: it is of another build "
                 "(another build); build both from the same sources"));
  const TemporaryFolder folder;
  std::ofstream(folder / "text") << "no library";
  CHECK(Contains(Doctor(folder / "text"),
                 "none: cannot load libsluice_cuda.so: /libsluice_cuda.so: "));
  // A library, but no module.
  CHECK(Contains(Doctor(SLUICE_NO_MODULE),
                 "none: cannot use libsluice_cuda.so: it is not a module"));
}

TEST_CASE("the doctor says where a module's libraries are, GPU or not") {
  const Outcome doctor = WholeDoctor(SLUICE_MODULE_WITHOUT_GPU, {"doctor"});
  CHECK(Contains(doctor.err, "cuDNN is absent\n"));
  const std::string& text = doctor.out;
  CHECK(Contains(text, "gpu         none: there is no driver\n"));
  CHECK(Contains(text,
                 "gpu uses    cudnn /python/nvidia/cudnn/lib/libcudnn.so.9\n"));
  CHECK(Contains(
      text, "gpu uses    nvrtc absent: libnvrtc.so.13 cannot be loaded\n"));
  const auto libraries = nlohmann::json::parse(
      WholeDoctor(SLUICE_MODULE_WITHOUT_GPU, {"doctor", "--json"})
          .out)["gpu_libraries"];
  CHECK_EQ(libraries.size(), 2);
  CHECK_EQ(libraries["cudnn"], "/python/nvidia/cudnn/lib/libcudnn.so.9");
  CHECK_EQ(WholeDoctor("", {"doctor"}).out.find("gpu uses"), std::string::npos);
}

std::string said;  // by the module

// This program is linked with the static library; the module brings the engine
// that it calls (cmake/SluiceCuda.cmake).
TEST_CASE("what a module with another copy of the engine says and makes") {
  if (kSanitized) return;  // sanitizers want one program
  void* const module =
      OpenModule(SLUICE_MODULE_WITHOUT_GPU, "it cannot be opened")
          .ValueOrThrow();
  const auto entry = reinterpret_cast<ModuleEntry>(dlsym(module, kModuleEntry));
  REQUIRE((entry != nullptr));
  KernelTable kernels;
  ModuleLibraries (*libraries)() = nullptr;
  const ModuleHost host = {SLUICE_BUILD_ID,
                           &kernels,
                           [](DeviceType, AcceleratorOpener) {},
                           [](DeviceType, const DeviceGroups*) {},
                           &libraries,
                           [](std::string_view line) { said += line; }};
  const char* const fault = entry(host);
  REQUIRE_EQ(std::string(fault == nullptr ? "" : fault), "");
  REQUIRE((libraries != nullptr));
  CHECK_EQ(libraries().size(), 2);
  CHECK_EQ(said, "cuDNN is absent");

  KernelSpec spec{.op = "SendStart"};
  spec.attrs = {{"edge", 3}, {"sender", 1}, {"receiver", 2}, {"key", "x"}};
  spec.inputs = {{DType::kFloat32, {2}}};
  const MadeKernel made = kernels.Make(spec, DeviceType::kCuda).ValueOrThrow();
  const Transfer transfer = TransferOf(*made.kernel);
  REQUIRE((transfer.edge != nullptr));
  CHECK_EQ(transfer.call, Transfer::kSendStart);
  CHECK_EQ(transfer.edge->number, 3);
  CHECK_EQ(transfer.edge->name, "x");
}

}  // namespace
}  // namespace sluice::testing
