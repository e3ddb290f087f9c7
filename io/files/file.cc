#include "io/files/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <limits>

#include "engine/catch_errors.h"
#include "io/files/grow_text.h"
#include "io/files/lock_warning.h"

namespace sluice {
namespace {

// Retries a system call that a signal interrupted.
template <typename Call>
auto Retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path)
      : fd_(fd), path_(std::move(path)) {}

  Status Append(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n =
          Retry([&] { return write(fd_.get(), bytes.data(), bytes.size()); });
      if (n < 0) return FileError(errno, "write", path_);
      bytes.remove_prefix(n);
    }
    return {};
  }
  Status Sync() override {
    if (Retry([&] { return fsync(fd_.get()); }) < 0) {
      return FileError(errno, "sync", path_);
    }
    return {};
  }
  Status Close() override {
    if (close(fd_.Release()) < 0) return FileError(errno, "close", path_);
    return {};
  }

 private:
  Descriptor fd_;
  std::string path_;
};

// An open-file-description lock (fcntl(2)): unlike those of processes it is not
// lost when the process closes the file elsewhere, and it ends with the last
// descriptor, so that nothing is left of a killed process's.
class PosixFileLock : public FileLock {
 public:
  PosixFileLock(int fd, std::string warning)
      : fd_(fd), warning_(std::move(warning)) {}
  std::string warning() const override { return warning_; }

 private:
  Descriptor fd_;
  const std::string warning_;
};

// A file, not a pipe or a folder, for reading.
Result<Descriptor> OpenRegular(const std::string& path, struct stat* info) {
  // Opening a pipe would wait for who writes into it.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  Descriptor fd(Retry([&] { return open(path.c_str(), kFlags); }));
  if (fd.get() < 0 || fstat(fd.get(), info) < 0) {
    const bool forbidden = errno == EACCES || errno == EPERM;
    Status error = FileError(errno, "open", path);
    if (forbidden) return FailedPrecondition(error.message());
    return error;
  }
  if (!S_ISREG(info->st_mode)) {
    return DataLoss(
        fmt::format("cannot read '{}': it is a {}, not a file", path,
                    S_ISDIR(info->st_mode) ? "folder" : "pipe or a device"));
  }
  return fd;
}

// Of years that int64 does not reach (2262) the count wraps around.
constexpr int64_t Nanoseconds(const timespec& time) {
  return static_cast<int64_t>(static_cast<uint64_t>(time.tv_sec) *
                                  uint64_t{1'000'000'000} +
                              static_cast<uint64_t>(time.tv_nsec));
}

std::string VersionText(const struct stat& info) {
  return fmt::format("{} {} {} {}", info.st_size, info.st_ino,
                     Nanoseconds(info.st_mtim), Nanoseconds(info.st_ctim));
}

class PosixReadableFile : public ReadableFile {
 public:
  PosixReadableFile(Descriptor fd, const struct stat& info, std::string path)
      : fd_(std::move(fd)), opened_(info), path_(std::move(path)) {}

  uint64_t size() const override {
    return static_cast<uint64_t>(opened_.st_size);
  }
  std::string version() const override { return VersionText(opened_); }
  std::optional<std::chrono::system_clock::time_point> written()
      const override {
    const auto since = std::chrono::nanoseconds(Nanoseconds(opened_.st_mtim));
    using Clock = std::chrono::system_clock;
    return Clock::time_point(
        std::chrono::duration_cast<Clock::duration>(since));
  }
  Result<size_t> ReadAt(uint64_t offset, void* out, size_t n) const override {
    auto* to = static_cast<char*>(out);
    size_t done = 0;
    while (done < n) {
      const ssize_t got = Retry([&] {
        return pread(fd_.get(), to + done, n - done,
                     static_cast<off_t>(offset + done));
      });
      if (got < 0) return FileError(errno, "read", path_);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

 private:
  const Descriptor fd_;
  const struct stat opened_;
  const std::string path_;
};

class PosixFileSystem : public FileSystem {
 public:
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                         std::string_view holder,
                                         const OnWait&) override {
    Descriptor fd(Retry([&] {
      return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    }));
    if (fd.get() < 0) return FileError(errno, "create", path);
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    std::string warning;
    if (Retry([&] { return fcntl(fd.get(), F_OFD_SETLK, &whole); }) < 0) {
      const int error = errno;
      if (error == EAGAIN || error == EACCES) {
        SLUICE_ASSIGN_OR_RETURN(const std::string other, ReadPrefix(path, 200));
        return FailedPrecondition(other);
      }
      warning = WarningWithoutLocks(error, path);
      if (warning.empty()) return FileError(error, "lock", path);
    }
    if (ftruncate(fd.get(), 0) < 0 || Retry([&] {
                                        return pwrite(fd.get(), holder.data(),
                                                      holder.size(), 0);
                                      }) < 0) {
      return FileError(errno, "write", path);
    }
    return std::unique_ptr<FileLock>(
        std::make_unique<PosixFileLock>(fd.Release(), std::move(warning)));
  }

  Result<std::string> ReadPrefix(const std::string& path,
                                 size_t limit) override {
    return CatchErrors([&] { return ReadUpTo(path, limit); });
  }

  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    struct stat info {};
    SLUICE_ASSIGN_OR_RETURN(Descriptor fd, OpenRegular(path, &info));
    return std::unique_ptr<ReadableFile>(
        std::make_unique<PosixReadableFile>(std::move(fd), info, path));
  }

  Result<size_t> Size(const std::string& path) override {
    struct stat info {};
    if (stat(path.c_str(), &info) < 0) return FileError(errno, "open", path);
    return static_cast<size_t>(info.st_size);
  }

  Result<std::string> Version(const std::string& path) override {
    // Two ticks of the slowest clock that kernels give files their times by.
    constexpr int64_t kTickNanoseconds = 20'000'000;
    // Before the file is looked at: what comes after is younger for certain.
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return FileError(errno, "read", path);
    if (Nanoseconds(info.st_ctim) > Nanoseconds(now) - kTickNanoseconds) {
      return FailedPrecondition(
          fmt::format("'{}' has just been written", path));
    }
    return VersionText(info);
  }

  Result<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    return Open(path, O_TRUNC);
  }
  Result<std::unique_ptr<WritableFile>> OpenAppend(
      const std::string& path) override {
    return Open(path, O_APPEND);
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) < 0) {
      return FileError(errno, "rename to", to);
    }
    return {};
  }
  Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) < 0) return FileError(errno, "remove", path);
    return {};
  }

  Status SyncDirectory(const std::string& path) override {
    Descriptor fd(
        Retry([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY); }));
    if (fd.get() < 0) return FileError(errno, "open", path);
    // Some network file systems cannot sync a folder and say EINVAL.
    if (Retry([&] { return fsync(fd.get()); }) < 0 && errno != EINVAL) {
      return FileError(errno, "sync", path);
    }
    return {};
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
    if (folder == nullptr) return FileError(errno, "list", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(folder.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return FileError(errno, "list", path);
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<bool> Exists(const std::string& path) override {
    if (access(path.c_str(), F_OK) == 0) return true;
    // Of a path below a file there is nothing either.
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return FileError(errno, "look for", path);
  }

  Status MakeDirectories(const std::string& path) override {
    if (mkdir(path.c_str(), 0777) == 0) {
      return SyncDirectory(ParentDirectory(path));
    }
    if (errno == ENOENT && ParentDirectory(path) != path) {
      SLUICE_RETURN_IF_ERROR(MakeDirectories(ParentDirectory(path)));
      // Some file systems (/proc) refuse with ENOENT although the parent
      // exists.
      if (mkdir(path.c_str(), 0777) == 0) {
        return SyncDirectory(ParentDirectory(path));
      }
    }
    const int error = errno;
    struct stat info {};
    if (stat(path.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) return {};
      return FileError(ENOTDIR, "create", path);
    }
    return FileError(error, "create", path);
  }

 private:
  Result<std::string> ReadUpTo(const std::string& path, size_t limit) {
    struct stat info {};
    SLUICE_ASSIGN_OR_RETURN(const Descriptor fd, OpenRegular(path, &info));
    std::string bytes;
    // Files in /proc have no size: they are read on until the end.
    constexpr size_t kNoSize = 65536;
    const auto size = static_cast<size_t>(std::max<off_t>(info.st_size, 0));
    for (;;) {
      const size_t before = bytes.size();
      const size_t most = std::min(limit, size > 0 ? size : before + kNoSize);
      const auto read = [&](char* to) {
        return ReadFull(fd, path, to, most - before);
      };
      SLUICE_RETURN_IF_ERROR(GrowText(&bytes, most - before, read));
      if (size > 0 || bytes.size() == limit || bytes.size() < most) {
        return bytes;
      }
    }
  }

  // How many there were, fewer only at the end.
  static Result<size_t> ReadFull(const Descriptor& fd, const std::string& path,
                                 char* to, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t n =
          Retry([&] { return read(fd.get(), to + done, bytes - done); });
      if (n < 0) return FileError(errno, "read", path);
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

  static Result<std::unique_ptr<WritableFile>> Open(const std::string& path,
                                                    int how) {
    const int fd = Retry([&] {
      return open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
    });
    if (fd < 0) return FileError(errno, "create", path);
    return std::unique_ptr<WritableFile>(
        std::make_unique<PosixWritableFile>(fd, path));
  }
};

}  // namespace

FileSystem& FileSystem::Posix() {
  static PosixFileSystem files;
  return files;
}

Result<std::string> FileSystem::Read(const std::string& path) {
  return ReadPrefix(path, std::numeric_limits<size_t>::max());
}

Result<std::string> FileSystem::Version(const std::string& path) {
  return Unimplemented(
      fmt::format("'{}': nothing tells whether such a file has changed", path));
}

Result<std::map<std::string, std::string>> FileSystem::Versions(
    const std::string& folder) {
  return Unimplemented(
      fmt::format("'{}': versions are asked for one by one", folder));
}

Result<FileSystem::Listing> FileSystem::ListAll(const std::string& folder) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> names, List(folder));
  return Listing{std::move(names), {}};
}

Status FileSystem::WriteAtomically(const std::string& path,
                                   std::span<const std::string_view> pieces) {
  return StreamAtomically(path, [&](const Append& append) -> Status {
    for (std::string_view piece : pieces) {
      SLUICE_RETURN_IF_ERROR(append(piece));
    }
    return {};
  });
}

Status FileSystem::StreamAtomically(
    const std::string& path,
    const std::function<Status(const Append& append)>& write) {
  const std::string temporary = TemporaryName(path);
  const auto write_all = [&]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const auto file, Create(temporary));
    SLUICE_RETURN_IF_ERROR(
        write([&](std::string_view piece) { return file->Append(piece); }));
    SLUICE_RETURN_IF_ERROR(file->Sync());
    SLUICE_RETURN_IF_ERROR(file->Close());
    return Rename(temporary, path);
  };
  if (Status status = write_all(); !status.ok()) {
    // The first error is the one to report.
    (void)Remove(temporary);
    return status;
  }
  return SyncDirectory(ParentDirectory(path));
}

std::string ParentDirectory(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  const size_t slash = path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  const size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

std::string JoinPath(const std::string& directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  std::string path = directory;
  if (path.back() != '/') path += '/';
  return path.append(name);
}

Status FileError(int error_number, std::string_view verb,
                 const std::string& path) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return ResourceExhausted(fmt::format(
          "disk is full: cannot {} '{}'; free some space there", verb, path));
    case EROFS:
      return Unavailable(
          fmt::format("cannot {} '{}': read-only file system; choose a folder "
                      "that can be written",
                      verb, path));
    case EACCES:
    case EPERM:
      return Unavailable(
          fmt::format("cannot {} '{}': permission denied; change its "
                      "permissions or choose another folder",
                      verb, path));
    case ENOENT:
      return NotFound(
          fmt::format("cannot {} '{}': no such file or folder", verb, path));
    case EXDEV:
      return InvalidArgument(fmt::format(
          "cannot {} '{}': it is on another file system", verb, path));
    default:
      return Unavailable(fmt::format("cannot {} '{}': {}", verb, path,
                                     std::strerror(error_number)));
  }
}

}  // namespace sluice
