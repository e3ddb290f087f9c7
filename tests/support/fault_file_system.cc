#include "tests/support/fault_file_system.h"

#include <fmt/format.h>

#include <cerrno>

namespace sluice::testing {

class FaultFileSystem::Handle : public WritableFile {
 public:
  Handle(FaultFileSystem* files, std::shared_ptr<File> file, std::string path)
      : files_(files), file_(std::move(file)), path_(std::move(path)) {}

  Status Append(std::string_view bytes) override {
    MutexLock lock(files_->mutex_);
    return files_->Append(*file_, path_, bytes);
  }
  Status Sync() override {
    MutexLock lock(files_->mutex_);
    SLUICE_RETURN_IF_ERROR(files_->Begin("sync", path_));
    file_->synced = file_->bytes;
    return {};
  }
  Status Close() override { return {}; }

 private:
  FaultFileSystem* files_;
  std::shared_ptr<File> file_;
  std::string path_;
};

// As of a POSIX file: reads what is there now, also after it was removed.
class FaultFileSystem::Reader : public ReadableFile {
 public:
  Reader(FaultFileSystem* files, std::shared_ptr<File> file, uint64_t size)
      : files_(files), file_(std::move(file)), size_(size) {}

  uint64_t size() const override { return size_; }
  Result<size_t> ReadAt(uint64_t offset, void* out, size_t n) const override {
    MutexLock lock(files_->mutex_);
    const std::string& bytes = file_->bytes;
    if (offset >= bytes.size()) return size_t{0};
    return bytes.copy(static_cast<char*>(out), n, offset);
  }

 private:
  FaultFileSystem* files_;
  std::shared_ptr<File> file_;
  const uint64_t size_;
};

class FaultFileSystem::Held : public FileLock {
 public:
  Held(FaultFileSystem* files, std::string path, int process)
      : files_(files), path_(std::move(path)), process_(process) {}
  ~Held() override {
    MutexLock lock(files_->mutex_);
    // A dead process's is gone already.
    if (process_ == files_->processes_) files_->locks_.erase(path_);
  }

 private:
  FaultFileSystem* files_;
  std::string path_;
  int process_;
};

FaultFileSystem::FaultFileSystem() : folders_{".", "/"} {}
FaultFileSystem::~FaultFileSystem() = default;

void FaultFileSystem::FailAt(int operation, Fault fault) {
  MutexLock lock(mutex_);
  fail_at_ = operation;
  fault_ = fault;
}

void FaultFileSystem::SetReadOnly(bool read_only) {
  MutexLock lock(mutex_);
  read_only_ = read_only;
}

int FaultFileSystem::operations() const {
  MutexLock lock(mutex_);
  return operations_;
}

bool FaultFileSystem::failed() const {
  MutexLock lock(mutex_);
  return fail_at_ > 0 && operations_ >= fail_at_;
}

void FaultFileSystem::Restart(Loss loss) {
  MutexLock lock(mutex_);
  operations_ = fail_at_ = 0;
  locks_.clear();
  ++processes_;
  if (loss == Loss::kUnsyncedDataAndNames) names_ = synced_names_;
  // Files are copied, not changed: a handle of the dead process may still
  // point to them.
  for (auto& [path, file] : names_) {
    file = std::make_shared<File>(*file);
    if (loss != Loss::kNothing) file->bytes = file->synced;
    if (loss == Loss::kNothing) file->synced = file->bytes;
  }
  synced_names_ = names_;
}

Status FaultFileSystem::Begin(std::string_view verb, const std::string& path) {
  ++operations_;
  if (read_only_) return FileError(EROFS, verb, path);
  if (fail_at_ == 0 || operations_ < fail_at_) return {};
  if (fault_ == Fault::kKill) return Cancelled("the process was killed");
  // A full disk still renames and removes.
  if (verb == "write" || verb == "create") return FileError(ENOSPC, verb, path);
  return {};
}

Status FaultFileSystem::Append(File& file, const std::string& path,
                               std::string_view bytes) {
  const bool before = fail_at_ == 0 || operations_ < fail_at_;
  Status status = Begin("write", path);
  if (status.ok()) {
    file.bytes += bytes;
  } else if (before && !read_only_) {
    file.bytes += bytes.substr(0, bytes.size() / 2);
  }
  return status;
}

Result<std::string> FaultFileSystem::ReadPrefix(const std::string& path,
                                                size_t limit) {
  MutexLock lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end()) return FileError(ENOENT, "open", path);
  return found->second->bytes.substr(0, limit);
}

Result<std::unique_ptr<ReadableFile>> FaultFileSystem::OpenRead(
    const std::string& path) {
  MutexLock lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end()) return FileError(ENOENT, "open", path);
  return std::unique_ptr<ReadableFile>(std::make_unique<Reader>(
      this, found->second, found->second->bytes.size()));
}

Result<size_t> FaultFileSystem::Size(const std::string& path) {
  MutexLock lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end()) return FileError(ENOENT, "open", path);
  return found->second->bytes.size();
}

Result<std::unique_ptr<WritableFile>> FaultFileSystem::Open(
    const std::string& path, bool empty) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(Begin("create", path));
  if (!folders_.contains(ParentDirectory(path))) {
    return FileError(ENOENT, "create", path);
  }
  std::shared_ptr<File>& file = names_[path];
  if (file == nullptr) file = std::make_shared<File>();
  if (empty) file->bytes.clear();
  return std::unique_ptr<WritableFile>(
      std::make_unique<Handle>(this, file, path));
}

Result<std::unique_ptr<WritableFile>> FaultFileSystem::Create(
    const std::string& path) {
  return Open(path, true);
}

Result<std::unique_ptr<WritableFile>> FaultFileSystem::OpenAppend(
    const std::string& path) {
  return Open(path, false);
}

Status FaultFileSystem::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(Begin("rename to", to));
  const auto found = names_.find(from);
  if (found == names_.end()) return FileError(ENOENT, "rename to", to);
  names_[to] = found->second;
  names_.erase(from);
  return {};
}

Status FaultFileSystem::Remove(const std::string& path) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(Begin("remove", path));
  if (names_.erase(path) == 0) return FileError(ENOENT, "remove", path);
  return {};
}

Status FaultFileSystem::SyncDirectory(const std::string& path) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(Begin("sync", path));
  std::erase_if(synced_names_, [&](const auto& entry) {
    return ParentDirectory(entry.first) == path;
  });
  for (const auto& [name, file] : names_) {
    if (ParentDirectory(name) == path) synced_names_[name] = file;
  }
  return {};
}

Result<std::vector<std::string>> FaultFileSystem::List(
    const std::string& path) {
  MutexLock lock(mutex_);
  if (!folders_.contains(path)) return FileError(ENOENT, "list", path);
  std::vector<std::string> names;
  for (const auto& [name, file] : names_) {
    if (ParentDirectory(name) == path) {
      names.push_back(name.substr(name.rfind('/') + 1));
    }
  }
  return names;
}

Result<bool> FaultFileSystem::Exists(const std::string& path) {
  MutexLock lock(mutex_);
  return names_.contains(path) || folders_.contains(path);
}

Result<std::unique_ptr<FileLock>> FaultFileSystem::Lock(const std::string& path,
                                                        std::string_view holder,
                                                        const OnWait&) {
  MutexLock lock(mutex_);
  if (read_only_) return FileError(EROFS, "create", path);
  const auto [held, taken] = locks_.emplace(path, holder);
  // The file holds what the holder wrote when it took it, or later.
  const auto file = names_.find(path);
  if (!taken) {
    return FailedPrecondition(file == names_.end() ? held->second
                                                   : file->second->bytes);
  }
  if (file != names_.end()) file->second->bytes = holder;
  return std::unique_ptr<FileLock>(
      std::make_unique<Held>(this, path, processes_));
}

Status FaultFileSystem::MakeDirectories(const std::string& path) {
  MutexLock lock(mutex_);
  if (folders_.contains(path)) return {};
  SLUICE_RETURN_IF_ERROR(Begin("create", path));
  for (std::string folder = path; folders_.insert(folder).second;) {
    folder = ParentDirectory(folder);
  }
  return {};
}

}  // namespace sluice::testing
