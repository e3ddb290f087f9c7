// A file system in memory that fails on command: the test double of FileSystem.
#ifndef SLUICE_TESTS_SUPPORT_FAULT_FILE_SYSTEM_H_
#define SLUICE_TESTS_SUPPORT_FAULT_FILE_SYSTEM_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/thread_annotations.h"
#include "io/files/file.h"

namespace sluice::testing {

// Counts every changing operation (create, append, sync, rename, remove, sync
// of a folder, make folders) from 1 and can fail at the n-th. It also knows
// what is only in the page cache, so Restart can model a loss of power.
// Thread-safe.
class FaultFileSystem : public FileSystem {
 public:
  enum class Fault {
    kDiskFull,  // this append stores half its bytes; later ones fail as well
    kKill,      // the process dies here: half an append; all later calls fail
  };
  enum class Loss {
    kNothing,              // the process was killed, the machine runs on
    kUnsyncedData,         // power lost; names were on the disk, bytes not
    kUnsyncedDataAndNames  // power lost; only what was synced is left
  };

  FaultFileSystem();
  ~FaultFileSystem() override;

  void FailAt(int operation, Fault fault);
  void SetReadOnly(bool read_only);
  int operations() const;
  bool failed() const;  // has the fault happened?
  // A new process on what is left; clears the fault and the count.
  void Restart(Loss loss);

  Result<std::string> ReadPrefix(const std::string& path,
                                 size_t limit) override;
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override;
  Result<size_t> Size(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> OpenAppend(
      const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  Result<bool> Exists(const std::string& path) override;
  // Not among the operations that are counted.
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                         std::string_view holder,
                                         const OnWait& waits) override;
  using FileSystem::Lock;
  Status MakeDirectories(const std::string& path) override;

 private:
  struct File {
    std::string bytes;
    std::string synced;  // its prefix that survives a loss of power
  };
  using Names = std::map<std::string, std::shared_ptr<File>>;
  class Handle;
  class Reader;
  class Held;

  // Counts an operation; the error it must end with, if any.
  Status Begin(std::string_view verb, const std::string& path) REQUIRES(mutex_);
  Result<std::unique_ptr<WritableFile>> Open(const std::string& path,
                                             bool empty);
  Status Append(File& file, const std::string& path, std::string_view bytes)
      REQUIRES(mutex_);

  mutable Mutex mutex_;
  Names names_ GUARDED_BY(mutex_);
  Names synced_names_ GUARDED_BY(mutex_);
  std::set<std::string> folders_ GUARDED_BY(mutex_);
  std::map<std::string, std::string> locks_ GUARDED_BY(mutex_);  // holders
  int processes_ GUARDED_BY(mutex_) = 0;  // before this one
  int operations_ GUARDED_BY(mutex_) = 0;
  int fail_at_ GUARDED_BY(mutex_) = 0;  // 0: never
  Fault fault_ GUARDED_BY(mutex_) = Fault::kKill;
  bool read_only_ GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_FAULT_FILE_SYSTEM_H_
