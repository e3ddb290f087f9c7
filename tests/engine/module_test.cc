// Programs beside a libsluice_cuda.so that is not theirs: one line, code 1.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/places.h"
#include "tests/support/program.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

// What a copy of the tool says where `module` lies beside it.
std::string Doctor(const fs::path& module) {
  const TemporaryFolder folder;
  fs::copy_file(fs::path(SLUICE_BIN_DIR) / "sluice", folder / "sluice");
  if (!module.empty()) {
    fs::copy_file(module, folder / "libsluice_cuda.so");
  }
  const Outcome outcome = RunProgram(folder / "sluice", {"doctor"});
  CHECK_EQ(outcome.code, 0);
  const size_t begin = outcome.out.find("gpu  ");
  REQUIRE(begin != std::string::npos);
  std::string line =
      outcome.out.substr(begin, outcome.out.find('\n', begin) - begin);
  // The folder differs from run to run.
  for (size_t at = line.find(folder.path()); at != std::string::npos;
       at = line.find(folder.path())) {
    line.erase(at, folder.path().size());
  }
  return line;
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

}  // namespace
}  // namespace sluice::testing
