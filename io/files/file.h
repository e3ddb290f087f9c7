// The operating system's files behind one interface, so that tests can take
// the disk away (tests/support/fault_file_system.h).
#ifndef SLUICE_IO_FILES_FILE_H_
#define SLUICE_IO_FILES_FILE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// A file open for writing. One thread at a time. The destructor closes it
// without syncing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Hands the bytes to the operating system: they survive the end of the
  // process, not the loss of power.
  virtual Status Append(std::string_view bytes) = 0;
  // Returns when all appended bytes are on the disk.
  virtual Status Sync() = 0;
  virtual Status Close() = 0;
};

// A file open for reading anywhere in it. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // The file's size in bytes when it was opened.
  virtual uint64_t size() const = 0;
  // Up to n bytes from `offset` on into `out`; returns how many, fewer only
  // where the file ends.
  virtual Result<size_t> ReadAt(uint64_t offset, void* out, size_t n) const = 0;
  // Opens the same version again, which asks nobody, as of an object in a
  // store; null where the path must be opened. May outlive the file, not its
  // file system.
  using Reopen = std::function<std::unique_ptr<ReadableFile>()>;
  virtual Reopen reopen() const { return nullptr; }
  // What FileVersion (io/files/file_version.h) returns for the path as long as
  // the file there is still this one, as it was when it was opened; empty where
  // it is not known.
  virtual std::string version() const { return {}; }
  // When the file was last written, before it was opened, by the clock of the
  // machine that keeps it; nullopt where it is not known. For an object the end
  // of that second.
  virtual std::optional<std::chrono::system_clock::time_point> written() const {
    return std::nullopt;
  }
};

// A lock on a file, held until it is destroyed or the process ends, however it
// ends (in an object store a while after that). Thread-safe.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // Which programs the lock does not keep out, in one line; empty: none.
  virtual std::string warning() const { return {}; }
};

// Thread-safe. Errors name the path and say what to do: kNotFound,
// kResourceExhausted (disk full), kUnavailable (no permission, read-only).
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The machine's own; lives as long as the process.
  static FileSystem& Posix();
  // The file system for paths as users write them: "scheme://rest" is for the
  // file system registered for the scheme (io/files/schemes.h), any other path
  // for Posix().
  static FileSystem& Default();

  // The first `limit` bytes, fewer when the file is shorter. kDataLoss for a
  // path that is no file, such as a pipe, which may never end;
  // kFailedPrecondition without the permission.
  virtual Result<std::string> ReadPrefix(const std::string& path,
                                         size_t limit) = 0;
  // Errors as ReadPrefix.
  virtual Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) = 0;
  virtual Result<size_t> Size(const std::string& path) = 0;  // bytes
  // The file's version, for FileVersion (io/files/file_version.h). By default
  // kUnimplemented.
  virtual Result<std::string> Version(const std::string& path);
  // The versions of all files directly in a folder, by their names, where one
  // request gives them, as in an object store. By default kUnimplemented.
  virtual Result<std::map<std::string, std::string>> Versions(
      const std::string& folder);
  // Creates the file or empties an existing one.
  virtual Result<std::unique_ptr<WritableFile>> Create(
      const std::string& path) = 0;
  // Creates the file or writes behind its last byte.
  virtual Result<std::unique_ptr<WritableFile>> OpenAppend(
      const std::string& path) = 0;
  // Renames a file atomically; replaces `to`. kInvalidArgument where that is on
  // another file system (MoveFile, io/files/move_file.h).
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(const std::string& path) = 0;
  // Makes creations, renames and removals in a folder survive a loss of power.
  virtual Status SyncDirectory(const std::string& path) = 0;
  // Names (not paths) in a folder, sorted.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  // What List returns, and the paths of folders and objects that it leaves out,
  // since they have no name of their own in the folder: in an object store a
  // folder that is called as an object is, unless that is empty, and what has
  // an empty name. By default none are.
  struct Listing {
    std::vector<std::string> names, left_out;
  };
  virtual Result<Listing> ListAll(const std::string& folder);
  // Whether there is a file or a folder. False only where there surely is none;
  // an error where that cannot be told, as without the permission or with a
  // server that is away, lest something be done as if there were none.
  virtual Result<bool> Exists(const std::string& path) = 0;
  // Locks the file, created if need be, and writes `holder` into it. While
  // another lock of it is held, here or in another process,
  // kFailedPrecondition, the message being what that holder wrote. In an object
  // store a lock can be lost, to a program that found it not renewed: then
  // nothing can be written in its folder any more. File systems that know no
  // locks let everybody have one. Where it must be waited for whether the
  // holder of one still lives, as in an object store, `waits` is told at once
  // and every ten seconds, in one line, for whom and how long; it may be null.
  using OnWait = std::function<void(std::string_view line)>;
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                                 std::string_view holder,
                                                 const OnWait& waits) = 0;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                         std::string_view holder) {
    return Lock(path, holder, nullptr);
  }
  // Creates the folder and its missing parents; an existing one is fine.
  virtual Status MakeDirectories(const std::string& path) = 0;

  // At any instant, loss of power included, `path` holds its old content or
  // the concatenated pieces. By default: a temporary file in the same folder,
  // fsync, rename, fsync of the folder. A failure removes the temporary file; a
  // crash may leave one (IsTemporaryName).
  virtual Status WriteAtomically(const std::string& path,
                                 std::span<const std::string_view> pieces);

  // WriteAtomically of the pieces that `write` gives to its argument, which
  // need not be in memory together. An error of either fails the whole.
  using Append = std::function<Status(std::string_view piece)>;
  virtual Status StreamAtomically(
      const std::string& path,
      const std::function<Status(const Append& append)>& write);

  Result<std::string> Read(const std::string& path);
  Status WriteAtomically(const std::string& path, std::string_view bytes) {
    return WriteAtomically(path, std::span(&bytes, 1));
  }
};

// The name of a file until it is whole: "PATH.tmp-PROCESS-SPACE-NUMBER",
// another one each time, in each process of each machine and container. Of a
// long PATH its last name is shortened.
std::string TemporaryName(const std::string& path);
// Whether TemporaryName could have made this name.
bool IsTemporaryName(std::string_view name);

// "a/b" of "a/b/c"; "." when there is no slash.
std::string ParentDirectory(const std::string& path);
std::string JoinPath(const std::string& directory, std::string_view name);

// The Status of a failed system call: FileError(ENOSPC, "write", path).
Status FileError(int error_number, std::string_view verb,
                 const std::string& path);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_FILE_H_
