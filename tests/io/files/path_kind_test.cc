#include "io/files/path_kind.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

TEST_CASE("sizes of what is there, and of what is none or cannot be read") {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "file") << "12345";
  std::ofstream empty(folder / "empty");
  fs::create_directory(folder / "folder");
  fs::create_symlink(folder / "file", folder / "link");
  fs::create_symlink(folder / "nothing", folder / "dangling");
  fs::create_symlink(folder / "loop", folder / "loop");
  CHECK(SizesOf({folder / "file", folder / "empty", folder / "link",
                 folder / "folder", folder / "nothing", folder / "dangling",
                 folder / "loop", folder / "file/below"}) ==
        std::vector<int64_t>{5, 0, 5, -1, -1, -1, -1, -1});
  CHECK(SizesOf({}).empty());
}

}  // namespace
}  // namespace sluice
