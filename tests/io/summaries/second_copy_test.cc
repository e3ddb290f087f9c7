// A program that has the library in it, and then, with a module, the shared one
// as well (engine/module.h): each has the messages of event files.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/places.h"

namespace sluice {
namespace {

TEST_CASE("a static program may load the shared library, too") {
  const std::string library = SLUICE_BIN_DIR "/libsluice.so";
  if (!std::filesystem::exists(library)) return;  // not built
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE_MESSAGE(handle != nullptr, dlerror());
}

}  // namespace
}  // namespace sluice
