// A file system whose every call is the same error.
#ifndef SLUICE_IO_REMOTE_UNAVAILABLE_FILES_H_
#define SLUICE_IO_REMOTE_UNAVAILABLE_FILES_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "io/files/file.h"

namespace sluice::remote {

// The file system of schemes that this build or machine cannot serve. Messages
// put the path before the error's. Thread-safe.
class UnavailableFiles : public FileSystem {
 public:
  explicit UnavailableFiles(Status error) : error_(std::move(error)) {}

  Result<std::string> ReadPrefix(const std::string& path, size_t) override {
    return Error(path);
  }
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    return Error(path);
  }
  Result<size_t> Size(const std::string& path) override { return Error(path); }
  Result<std::string> Version(const std::string& path) override {
    return Error(path);
  }
  Result<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    return Error(path);
  }
  Result<std::unique_ptr<WritableFile>> OpenAppend(
      const std::string& path) override {
    return Error(path);
  }
  Status Rename(const std::string& from, const std::string&) override {
    return Error(from);
  }
  Status Remove(const std::string& path) override { return Error(path); }
  Status SyncDirectory(const std::string& path) override { return Error(path); }
  Result<std::vector<std::string>> List(const std::string& path) override {
    return Error(path);
  }
  Result<bool> Exists(const std::string& path) override { return Error(path); }
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                         std::string_view,
                                         const OnWait&) override {
    return Error(path);
  }
  using FileSystem::Lock;
  Status MakeDirectories(const std::string& path) override {
    return Error(path);
  }

 private:
  Status Error(const std::string& path) const {
    return error_.WithContext("'" + path.substr(0, path.find('?')) + "'");
  }

  const Status error_;
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_UNAVAILABLE_FILES_H_
