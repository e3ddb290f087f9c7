// A file system in memory that knows what is read, and may give it in morsels.
#ifndef SLUICE_TESTS_SUPPORT_WATCHED_FILES_H_
#define SLUICE_TESTS_SUPPORT_WATCHED_FILES_H_

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tests/support/fault_file_system.h"

namespace sluice::testing {

class WatchedFiles : public FaultFileSystem {
 public:
  // Gives up to `morsel` bytes a call.
  explicit WatchedFiles(size_t morsel = SIZE_MAX) : morsel_(morsel) {}

  // Also shortens a file that is open.
  void Write(const std::string& path, std::string_view content) {
    const auto file = Create(path);
    REQUIRE(file.ok());
    REQUIRE((*file)->Append(content).ok());
  }

  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(auto file, FaultFileSystem::OpenRead(path));
    return std::unique_ptr<ReadableFile>(
        std::make_unique<File>(this, std::move(file)));
  }

  size_t opened = 0;                      // files
  size_t reads = 0, bytes = 0, most = 0;  // calls, bytes and most of one asked

 private:
  class File : public ReadableFile {
   public:
    File(WatchedFiles* files, std::unique_ptr<ReadableFile> file)
        : files_(files), file_(std::move(file)) {
      ++files_->opened;
    }
    uint64_t size() const override { return file_->size(); }
    Result<size_t> ReadAt(uint64_t offset, void* out, size_t n) const override {
      ++files_->reads;
      files_->bytes += n;
      files_->most = std::max(files_->most, n);
      return file_->ReadAt(offset, out, std::min(n, files_->morsel_));
    }

   private:
    WatchedFiles* files_;
    std::unique_ptr<ReadableFile> file_;
  };

  const size_t morsel_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_WATCHED_FILES_H_
