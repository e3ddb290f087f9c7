#include "io/files/file_version.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <ctime>

#include "io/files/file.h"
#include "io/files/schemes.h"

namespace sluice {
namespace {

// Two ticks of the slowest clock that kernels give files their times by.
constexpr int64_t kTickNanoseconds = 20'000'000;

constexpr int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<std::string> FileVersion(const std::string& path) {
  if (!SchemeOf(path).empty()) return FileSystem::Default().Version(path);
  // Before the file is looked at: what comes after is younger for certain.
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) {
    return FileError(errno, "read", path);
  }
  const int64_t changed = Nanoseconds(file.st_ctim);
  if (changed > Nanoseconds(now) - kTickNanoseconds) {
    return FailedPrecondition(fmt::format("'{}' has just been written", path));
  }
  return fmt::format("{} {} {} {}", file.st_size, file.st_ino,
                     Nanoseconds(file.st_mtim), changed);
}

}  // namespace sluice
