#include "io/files/open_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>

#include "engine/threads.h"
#include "io/files/without_query.h"

namespace sluice {

OpenFiles::File OpenFiles::Find(size_t number) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(open_.begin(), open_.end(), [&](auto& entry) {
    return entry.first == number;
  });
  if (found == open_.end()) return nullptr;
  std::rotate(open_.begin(), found, found + 1);
  return open_.front().second;
}

void OpenFiles::Saw(size_t number, const ReadableFile& file) {
  ReadableFile::Reopen reopen = file.reopen();
  if (reopen == nullptr) return;
  MutexLock lock(mutex_);
  reopen_.emplace(number, std::move(reopen));
}

Result<OpenFiles::File> OpenFiles::Open(size_t number, const std::string& path,
                                        uint64_t size) {
  ReadableFile::Reopen reopen;
  {
    MutexLock lock(mutex_);
    const auto seen = reopen_.find(number);
    if (seen != reopen_.end()) reopen = seen->second;
  }
  if (reopen != nullptr) return File(reopen());
  auto reopened = file_system_->OpenRead(path);
  // It was there before: not one bad record, which may be passed over.
  if (!reopened.ok()) return Unavailable(reopened.status().message());
  File opened = *std::move(reopened);
  if (opened->size() != size) {
    return Unavailable(
        fmt::format("'{}' has changed: it has {} bytes, before it had {}",
                    WithoutQuery(path), opened->size(), size));
  }
  Saw(number, *opened);
  return opened;
}

Result<OpenFiles::File> OpenFiles::Get(size_t number, const std::string& path,
                                       uint64_t size) {
  constexpr size_t kMostOpen = 64;
  if (File found = Find(number)) return found;
  // Without the lock, since it may take long: two threads may open the same
  // file, which costs no more than that.
  SLUICE_ASSIGN_OR_RETURN(File opened, Open(number, path, size));
  MutexLock lock(mutex_);
  open_.emplace(open_.begin(), number, opened);
  if (open_.size() > kMostOpen) open_.pop_back();
  return opened;
}

Result<std::string_view> ForwardWindow::At(uint64_t offset, size_t least) {
  constexpr size_t kLeast = 512, kMost = size_t{64} << 10;
  if (end_ < least || offset > end_ - least) {
    const bool near = offset < end_ + bytes_.size();
    bytes_.resize(
        std::max(least, near ? std::min(2 * bytes_.size(), kMost) : kLeast));
    SLUICE_ASSIGN_OR_RETURN(const size_t got,
                            file_.ReadAt(offset, bytes_.data(), bytes_.size()));
    begin_ = offset;
    end_ = offset + got;
  }
  return std::string_view(bytes_).substr(offset - begin_, end_ - offset);
}

ItemNumbers::Item ItemNumbers::Find(int64_t number) const {
  SLUICE_CHECK(number >= 0 && number < size());
  // The last file that begins there: those before it are empty.
  const auto after = std::upper_bound(first_.begin(), first_.end(), number);
  const size_t file = after - first_.begin() - 1;
  return {file, static_cast<size_t>(number - first_[file])};
}

Status ForEachFile(size_t count, int threads,
                   const std::function<Status(size_t)>& learn) {
  std::vector<Status> errors(count);
  const auto files = static_cast<int64_t>(count);
  ThreadPool pool(static_cast<int>(
      std::clamp<int64_t>(threads, 1, std::max<int64_t>(files, 1))));
  // Behind one that has failed nothing is asked for any more: a server that
  // does not answer is waited for by every file.
  std::atomic<int64_t> failed{files};
  pool.ParallelFor(files, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && i < failed.load(); ++i) {
      errors[i] = learn(i);
      if (errors[i].ok()) continue;
      int64_t least = failed.load();
      while (i < least && !failed.compare_exchange_weak(least, i)) {
      }
    }
  });
  for (const Status& error : errors) SLUICE_RETURN_IF_ERROR(error);
  return {};
}

Result<std::string> TextOfFiles(
    size_t count, int threads,
    const std::function<Status(size_t, std::string*)>& describe) {
  std::vector<std::string> texts(count);
  SLUICE_RETURN_IF_ERROR(ForEachFile(
      count, threads, [&](size_t i) { return describe(i, &texts[i]); }));
  return fmt::format("{}", fmt::join(texts, ""));
}

std::string PlaceInFile(const std::string& path, uint64_t offset) {
  return fmt::format("'{}', byte {}", WithoutQuery(path), offset);
}

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      escaped += c;
    } else {
      escaped += fmt::format("\\x{:02x}", byte);
    }
  }
  return escaped;
}

}  // namespace sluice
