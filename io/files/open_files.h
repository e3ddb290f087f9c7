// The common parts of readers of many files at random, such as RecordFiles.
// Internal to io.
#ifndef SLUICE_IO_FILES_OPEN_FILES_H_
#define SLUICE_IO_FILES_OPEN_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace sluice {

// Keeps at most 64 files open, those used last. Of files that can be opened
// again without asking it keeps ReadableFile::reopen, so that their version
// stays the one that was seen first. Thread-safe.
class OpenFiles {
 public:
  using File = std::shared_ptr<const ReadableFile>;

  explicit OpenFiles(FileSystem& file_system) : file_system_(&file_system) {}

  // The file of that number, always the same `path`, which had `size` bytes
  // when it was looked at first. kUnavailable where it is gone or has another
  // size now.
  Result<File> Get(size_t number, const std::string& path, uint64_t size);
  // The file of that number has been opened: Get gives the same version.
  void Saw(size_t number, const ReadableFile& file);

 private:
  File Find(size_t number);
  Result<File> Open(size_t number, const std::string& path, uint64_t size);

  FileSystem* file_system_;
  Mutex mutex_;
  // Open files with their numbers; the one used last comes first.
  std::vector<std::pair<size_t, File>> open_ GUARDED_BY(mutex_);
  std::map<size_t, ReadableFile::Reopen> reopen_ GUARDED_BY(mutex_);
};

// Reads pieces of a file that lie apart, from its first byte to its last. Of
// large gaps it reads little; across small ones it reads many pieces at once.
class ForwardWindow {
 public:
  explicit ForwardWindow(const ReadableFile& file) : file_(file) {}

  // The bytes at `offset`, at least `least` of them unless the file ends; valid
  // until the next call, whose offset must not be less.
  Result<std::string_view> At(uint64_t offset, size_t least);

 private:
  const ReadableFile& file_;
  std::string bytes_;
  uint64_t begin_ = 0, end_ = 0;  // in the file, of what was read
};

// Numbers the items of several files, in the files' order.
class ItemNumbers {
 public:
  struct Item {
    size_t file, item;  // the item of that file
  };

  void AddFile(size_t items) {
    first_.push_back(first_.back() + static_cast<int64_t>(items));
  }
  int64_t size() const { return first_.back(); }
  // The item with a number from 0 to size() - 1.
  Item Find(int64_t number) const;

 private:
  std::vector<int64_t> first_ = {0};  // of each file, and how many there are
};

// Calls learn(i) for i from 0 to count - 1 on so many threads, but for those
// behind one that has failed; returns the error of the least i that has.
// Programs use it, too.
SLUICE_INTERNAL Status ForEachFile(size_t count, int threads,
                                   const std::function<Status(size_t)>& learn);

// The texts that describe(i, &text) writes of each file, one behind another; it
// is called by so many threads.
Result<std::string> TextOfFiles(
    size_t count, int threads,
    const std::function<Status(size_t, std::string*)>& describe);

// How messages call a byte of a file: "'dir/file', byte 1234".
std::string PlaceInFile(const std::string& path, uint64_t offset);

// How messages show text of a file: control characters, which would command a
// terminal, as "\x1b".
std::string Escaped(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_OPEN_FILES_H_
