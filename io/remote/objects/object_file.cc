#include "io/remote/objects/object_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <utility>

#include "engine/caught.h"
#include "engine/ceil_div.h"
#include "engine/thread_annotations.h"
#include "io/files/open_files.h"

namespace sluice::remote {
namespace {

// An object at one version, wherever its bytes are asked for.
struct Source {
  ObjectReader& reader;
  const std::string path;
  const ObjectVersion version;

  // Exactly n bytes, which the version has.
  Result<std::string> Fetch(uint64_t offset, uint64_t n) const {
    SLUICE_ASSIGN_OR_RETURN(ObjectPiece piece,
                            reader.Get(path, offset, n, &version));
    if (piece.bytes.size() == n) return std::move(piece.bytes);
    return Unavailable(
        fmt::format("cannot read '{}': got {} bytes at {}, wanted {}", path,
                    piece.bytes.size(), offset, n));
  }

  // The same into `out`, in parts.
  Status FetchInto(uint64_t offset, uint64_t n, char* out,
                   const ReadSizes& sizes) const {
    std::atomic<bool> failed = false;
    const uint64_t parts = CeilDiv(n, sizes.part);
    const auto fetch = [&](size_t i) -> Status {
      if (failed) return {};  // the error is another part's
      const uint64_t begin = i * sizes.part;
      const uint64_t size = std::min<uint64_t>(sizes.part, n - begin);
      Result<std::string> bytes = Unavailable("");
      try {
        bytes = Fetch(offset + begin, size);
      } catch (const std::bad_alloc&) {
        bytes = ResourceExhausted("out of memory");
      }
      if (!bytes.ok()) {
        failed = true;
        return bytes.status();
      }
      std::memcpy(out + begin, bytes->data(), size);
      return {};
    };
    if (parts == 1) return fetch(0);
    return ForEachFile(parts, sizes.parallel_parts, fetch);
  }
};

// Puts parts together as they come. Memory is touched then, not before: the
// server may be wrong about the size. Thread-safe.
class PartsInOrder {
 public:
  // The first part of `size` bytes.
  PartsInOrder(std::string first, uint64_t size)
      : size_(size), bytes_(std::move(first)) {}

  // The part that begins at `offset`; once each. std::bad_alloc.
  void Add(uint64_t offset, std::string part) {
    constexpr uint64_t kMost = uint64_t{1} << 30;
    MutexLock lock(mutex_);
    bytes_.reserve(std::min(size_, kMost));
    early_.emplace(offset, std::move(part));
    while (!early_.empty() && early_.begin()->first == bytes_.size()) {
      bytes_ += early_.begin()->second;
      early_.erase(early_.begin());
    }
  }
  // Once all are there.
  std::string Take() {
    MutexLock lock(mutex_);
    return std::move(bytes_);
  }

 private:
  const uint64_t size_;
  Mutex mutex_;
  std::string bytes_ GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> early_ GUARDED_BY(mutex_);
};

class ObjectFile : public ReadableFile {
 public:
  ObjectFile(std::shared_ptr<const Source> source, std::string head,
             FetchThreads& threads, const ReadSizes& sizes, bool ranged)
      : source_(std::move(source)),
        head_(std::move(head)),
        sizes_(sizes),
        threads_(threads),
        ranged_(ranged),
        readahead_(head_.size(), size(), sizes, threads,
                   [from = source_](uint64_t offset, uint64_t n) {
                     return from->Fetch(offset, n);
                   }) {}

  uint64_t size() const override { return source_->version.size; }

  Reopen reopen() const override {
    if (!ranged_) return nullptr;  // it was read as a whole
    return [source = source_, &threads = threads_, sizes = sizes_] {
      return std::make_unique<ObjectFile>(source, "", threads, sizes, true);
    };
  }

  Result<size_t> ReadAt(uint64_t offset, void* out, size_t n) const override {
    if (offset >= size()) return size_t{0};
    n = std::min<uint64_t>(n, size() - offset);
    auto* to = static_cast<char*>(out);
    size_t done = 0;
    if (offset < head_.size()) done = head_.copy(to, n, offset);
    // Larger reads bring their own parallel parts.
    if (n < sizes_.part) {
      SLUICE_ASSIGN_OR_RETURN(done, readahead_.Read(offset, done, to, n));
    }
    if (done < n) {
      SLUICE_RETURN_IF_ERROR(
          source_->FetchInto(offset + done, n - done, to + done, sizes_));
    }
    return n;
  }

 private:
  const std::shared_ptr<const Source> source_;
  const std::string head_;  // the first bytes
  const ReadSizes sizes_;
  FetchThreads& threads_;
  const bool ranged_;
  mutable Readahead readahead_;
};

}  // namespace

Result<std::unique_ptr<ReadableFile>> OpenObject(ObjectReader& reader,
                                                 const std::string& path,
                                                 FetchThreads& threads,
                                                 const ReadSizes& sizes) {
  SLUICE_ASSIGN_OR_RETURN(ObjectPiece head,
                          reader.Get(path, 0, sizes.head, nullptr));
  const uint64_t size = head.version.size;
  if (!head.ranged && head.bytes.size() != size) {
    return Unimplemented(
        fmt::format("cannot read '{}' in parts: the server knows no ranges, so "
                    "it can be read only as a whole",
                    path));
  }
  if (head.bytes.size() != std::min<uint64_t>(size, sizes.head)) {
    return Unavailable(
        fmt::format("cannot read '{}': its size is unknown", path));
  }
  auto source = std::make_shared<const Source>(reader, path, head.version);
  return std::unique_ptr<ReadableFile>(std::make_unique<ObjectFile>(
      std::move(source), std::move(head.bytes), threads, sizes, head.ranged));
}

Result<std::string> ReadObject(ObjectReader& reader, const std::string& path,
                               size_t limit, const ReadSizes& sizes) {
  if (limit == 0) {
    SLUICE_RETURN_IF_ERROR(reader.Head(path).status());
    return std::string();
  }
  SLUICE_ASSIGN_OR_RETURN(
      ObjectPiece piece,
      reader.Get(path, 0, std::min(limit, sizes.part), nullptr));
  const uint64_t wanted = std::min<uint64_t>(limit, piece.version.size);
  if (piece.bytes.size() >= wanted) return std::move(piece.bytes);
  if (!piece.ranged) {
    SLUICE_ASSIGN_OR_RETURN(piece, reader.Get(path, 0, limit, nullptr));
    return std::move(piece.bytes);
  }
  const Source source{reader, path, piece.version};
  uint64_t at = piece.bytes.size();
  PartsInOrder whole(std::move(piece.bytes), wanted);
  const auto fetch = [&](uint64_t offset) -> Status {
    const uint64_t n = std::min<uint64_t>(sizes.part, wanted - offset);
    try {
      SLUICE_ASSIGN_OR_RETURN(std::string bytes, source.Fetch(offset, n));
      whole.Add(offset, std::move(bytes));
    } catch (...) {
      return CaughtStatus();
    }
    return {};
  };
  // Hardly any gaps, and no list of all the parts of a size that is nonsense.
  constexpr uint64_t kRound = 1024;
  while (at < wanted) {
    const uint64_t parts = std::min(kRound, CeilDiv(wanted - at, sizes.part));
    SLUICE_RETURN_IF_ERROR(
        ForEachFile(parts, sizes.parallel_parts,
                    [&, at](size_t i) { return fetch(at + i * sizes.part); }));
    at = std::min<uint64_t>(wanted, at + parts * sizes.part);
  }
  return whole.Take();
}

}  // namespace sluice::remote
