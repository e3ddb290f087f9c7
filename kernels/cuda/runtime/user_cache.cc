#include "kernels/cuda/runtime/user_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

#include "engine/note.h"

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;

std::error_code LastError() {
  return {errno, std::generic_category()};
}

std::error_code WriteAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return LastError();
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return ::fsync(file) == 0 ? std::error_code() : LastError();
}

std::error_code WriteAndRename(const fs::path& path, std::string_view bytes) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return error;
  static std::atomic<int> written = 0;
  fs::path temporary = path;
  temporary += fmt::format(".{}.{}.tmp", ::getpid(), written++);
  const int file =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return LastError();
  error = WriteAll(file, bytes);
  if (::close(file) != 0 && !error) error = LastError();
  if (!error) fs::rename(temporary, path, error);
  std::error_code ignored;
  if (error) fs::remove(temporary, ignored);
  return error;
}

}  // namespace

fs::path UserCacheFolder() {
  const auto variable = [](const char* of) -> fs::path {
    const char* const value = std::getenv(of);  // NOLINT: nobody sets it here
    return value == nullptr ? "" : value;
  };
  fs::path base = variable("XDG_CACHE_HOME");
  if (base.empty() && !variable("HOME").empty()) {
    base = variable("HOME") / ".cache";
  }
  return base.empty() ? base : base / "sluice";
}

void WriteCacheFile(const fs::path& path, std::string_view bytes) {
  if (path.empty()) return;
  const std::error_code error = WriteAndRename(path, bytes);
  if (!error) return;
  static std::atomic<bool> told = false;
  NoteOnce(told,
           fmt::format("cannot write to the cache '{}': {}; each run compiles "
                       "and measures anew",
                       path.parent_path().string(), error.message()));
}

}  // namespace sluice::cuda
