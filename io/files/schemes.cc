#include "io/files/schemes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/thread_annotations.h"
#include "io/files/without_query.h"

namespace sluice {

namespace {

struct Schemes {
  Mutex mutex;
  std::map<std::string, FileSystem*, std::less<>> files GUARDED_BY(mutex);
};

Schemes& Registered() {
  static Schemes schemes;
  return schemes;
}

// The file system that a path belongs to.
Result<FileSystem*> Of(const std::string& path) {
  const std::string_view scheme = SchemeOf(path);
  if (scheme.empty()) return &FileSystem::Posix();
  Schemes& schemes = Registered();
  const MutexLock lock(schemes.mutex);
  const auto found = schemes.files.find(scheme);
  if (found != schemes.files.end()) return found->second;
  // Without a query, which may hold what gives access.
  return Unimplemented("'" + path.substr(0, path.find('?')) +
                       "': nothing here reads or writes " +
                       std::string(scheme) + "://");
}

class SchemeFileSystem : public FileSystem {
 public:
  Result<std::string> ReadPrefix(const std::string& path,
                                 size_t limit) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->ReadPrefix(path, limit);
  }
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->OpenRead(path);
  }
  Result<size_t> Size(const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->Size(path);
  }
  Result<std::string> Version(const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->Version(path);
  }
  Result<std::map<std::string, std::string>> Versions(
      const std::string& folder) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(folder));
    return files->Versions(folder);
  }
  Result<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->Create(path);
  }
  Result<std::unique_ptr<WritableFile>> OpenAppend(
      const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->OpenAppend(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(from));
    SLUICE_ASSIGN_OR_RETURN(FileSystem * target, Of(to));
    if (files != target) {
      return InvalidArgument("cannot rename '" + WithoutQuery(from) + "' to '" +
                             WithoutQuery(to) +
                             "', which is on another file system");
    }
    return files->Rename(from, to);
  }
  Status Remove(const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->Remove(path);
  }
  Status SyncDirectory(const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->SyncDirectory(path);
  }
  Result<std::vector<std::string>> List(const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->List(path);
  }
  Result<Listing> ListAll(const std::string& folder) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(folder));
    return files->ListAll(folder);
  }
  Result<bool> Exists(const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->Exists(path);
  }
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                         std::string_view holder,
                                         const OnWait& waits) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->Lock(path, holder, waits);
  }
  Status MakeDirectories(const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->MakeDirectories(path);
  }
  Status WriteAtomically(const std::string& path,
                         std::span<const std::string_view> pieces) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->WriteAtomically(path, pieces);
  }
  Status StreamAtomically(
      const std::string& path,
      const std::function<Status(const Append& append)>& write) override {
    SLUICE_ASSIGN_OR_RETURN(FileSystem * files, Of(path));
    return files->StreamAtomically(path, write);
  }
  using FileSystem::WriteAtomically;
};

bool IsLetter(char c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

}  // namespace

std::string_view SchemeOf(std::string_view path) {
  const size_t end = path.find("://");
  if (end == std::string_view::npos || end == 0 || !IsLetter(path[0])) {
    return {};
  }
  const std::string_view scheme = path.substr(0, end);
  const bool fits = std::all_of(scheme.begin(), scheme.end(), [](char c) {
    return IsLetter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
  });
  return fits ? scheme : std::string_view();
}

void RegisterScheme(const std::string& scheme, FileSystem& files) {
  Schemes& schemes = Registered();
  const MutexLock lock(schemes.mutex);
  schemes.files[scheme] = &files;
}

FileSystem& FileSystem::Default() {
  static SchemeFileSystem files;
  return files;
}

}  // namespace sluice
