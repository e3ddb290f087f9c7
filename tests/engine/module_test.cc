// Programs beside a libsluice_cuda.so that is not theirs: one line, code 1.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/places.h"
#include "tests/support/program.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

// What a copy of the tool says where `module` lies beside it.
std::string WholeDoctor(const fs::path& module,
                        const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  fs::copy_file(fs::path(SLUICE_BIN_DIR) / "sluice", folder / "sluice");
  if (!module.empty()) {
    fs::copy_file(module, folder / "libsluice_cuda.so");
  }
  const Outcome outcome = RunProgram(folder / "sluice", arguments);
  CHECK_EQ(outcome.code, 0);
  std::string text = outcome.out;
  // The folder differs from run to run.
  for (size_t at = text.find(folder.path()); at != std::string::npos;
       at = text.find(folder.path())) {
    text.erase(at, folder.path().size());
  }
  return text;
}

std::string Doctor(const fs::path& module) {
  const std::string text = WholeDoctor(module, {"doctor"});
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
  const std::string text = WholeDoctor(SLUICE_MODULE_WITHOUT_GPU, {"doctor"});
  CHECK(Contains(text, "gpu         none: there is no driver\n"));
  CHECK(Contains(text,
                 "gpu uses    cudnn /python/nvidia/cudnn/lib/libcudnn.so.9\n"));
  CHECK(Contains(
      text, "gpu uses    nvrtc absent: libnvrtc.so.13 cannot be loaded\n"));
  const auto libraries = nlohmann::json::parse(WholeDoctor(
      SLUICE_MODULE_WITHOUT_GPU, {"doctor", "--json"}))["gpu_libraries"];
  CHECK_EQ(libraries.size(), 2);
  CHECK_EQ(libraries["cudnn"], "/python/nvidia/cudnn/lib/libcudnn.so.9");
  CHECK_EQ(WholeDoctor("", {"doctor"}).find("gpu uses"), std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
