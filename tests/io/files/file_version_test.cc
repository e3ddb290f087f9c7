// Versions of files: others whenever the content is, whatever is done to hide
// it.
#include "io/files/file_version.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "io/files/file.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

// As soon as there is one.
std::string VersionOf(const std::string& path) {
  for (;;) {
    const Result<std::string> version = FileVersion(path);
    if (version.ok()) return *version;
    REQUIRE(version.status().code() == Code::kFailedPrecondition);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_CASE("a file that is written has another version, also of the same age") {
  const TemporaryFolder dir;
  const std::string path = dir / "f";
  std::ofstream(path) << "one";
  const std::string first = VersionOf(path);
  CHECK(VersionOf(path) == first);
  std::ifstream(path).get();  // reading is no change
  CHECK(VersionOf(path) == first);
  const auto time = fs::last_write_time(path);
  std::ofstream(path) << "two";
  fs::last_write_time(path, time);
  const std::string second = VersionOf(path);
  CHECK(second != first);
  // Another file in its place.
  std::ofstream(dir / "g") << "six";
  fs::last_write_time(dir / "g", time);
  fs::rename(dir / "g", path);
  CHECK(VersionOf(path) != second);
}

TEST_CASE("an open file has the version of its path until that is another's") {
  const TemporaryFolder dir;
  const std::string path = dir / "f";
  std::ofstream(path) << "one";
  // As young as it may be.
  const auto opened = FileSystem::Default().OpenRead(path).ValueOrThrow();
  const std::string version = opened->version();
  CHECK(VersionOf(path) == version);
  std::ofstream(dir / "g") << "two";
  fs::last_write_time(dir / "g", fs::last_write_time(path));
  fs::rename(dir / "g", path);
  CHECK(opened->version() == version);
  const std::string other = VersionOf(path);
  CHECK(other != version);
  CHECK(FileSystem::Default().OpenRead(path).ValueOrThrow()->version() ==
        other);
}

TEST_CASE("a file of the year 2300 has a version, too") {
  const TemporaryFolder dir;
  const std::string path = dir / "f";
  std::ofstream(path) << "one";
  std::string before = VersionOf(path);
  for (const time_t second : {10'413'792'000, 10'413'792'001}) {
    const timespec times[] = {{second, 0}, {second, 0}};
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    const std::string version = VersionOf(path);
    CHECK(version != before);
    before = version;
  }
}

TEST_CASE("what is not there, and what nobody knows") {
  const TemporaryFolder dir;
  CHECK(FileVersion(dir / "none").status().code() == Code::kNotFound);
  CHECK(FileVersion("s3://bucket/key").status().code() == Code::kUnimplemented);
  std::ofstream(dir / "file") << "x";
  CHECK(FileVersion(dir / "file/below").status().code() == Code::kUnavailable);
}

}  // namespace
}  // namespace sluice
