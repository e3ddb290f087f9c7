#include "io/remote/objects/object_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "engine/catch_errors.h"
#include "engine/ceil_div.h"
#include "io/files/grow_text.h"
#include "io/files/open_files.h"
#include "io/files/without_query.h"
#include "io/remote/http/http.h"

namespace sluice::remote {
namespace {

// An object at one version, wherever its bytes are asked for.
struct Source {
  ObjectReader& reader;
  const std::string path;
  const ObjectVersion version;

  // Exactly n bytes, which the version has: into `out`, or where that is null
  // returned.
  Result<std::string> Fetch(uint64_t offset, uint64_t n,
                            char* out = nullptr) const {
    Result<ObjectPiece> got = reader.Get(path, offset, n, &version, out);
    const Code code = got.status().code();
    if (code == Code::kNotFound || code == Code::kFailedPrecondition) {
      // It was given before: not one bad record, which may be passed over.
      return Unavailable(got.status().message());
    }
    SLUICE_ASSIGN_OR_RETURN(ObjectPiece piece, std::move(got));
    if (piece.size == n) return std::move(piece.bytes);
    return Unavailable(
        fmt::format("cannot read '{}': got {} bytes at {}, wanted {}",
                    WithoutQuery(path), piece.size, offset, n));
  }

  // Into `out`, in parts.
  Status FetchInto(uint64_t offset, uint64_t n, char* out,
                   const ReadSizes& sizes) const {
    std::atomic<bool> failed = false;
    const uint64_t parts = CeilDiv(n, sizes.part);
    const auto fetch = [&](size_t i) -> Status {
      if (failed) return {};  // the error is another part's
      const uint64_t begin = i * sizes.part;
      const uint64_t size = std::min<uint64_t>(sizes.part, n - begin);
      const Status fetched = CatchErrors(
          [&] { return Fetch(offset + begin, size, out + begin).status(); });
      if (!fetched.ok()) failed = true;
      return fetched;
    };
    if (parts == 1) return fetch(0);
    return ForEachFile(parts, sizes.parallel_parts, fetch);
  }
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
  std::string version() const override {
    const auto text = TextOf(source_->version, source_->path);
    return text.ok() ? *text : "";
  }
  std::optional<std::chrono::system_clock::time_point> written()
      const override {
    using std::chrono::system_clock;
    const auto second = ParseHttpDate(source_->version.last_modified);
    if (!second) return std::nullopt;
    return system_clock::from_time_t(*second) + std::chrono::milliseconds(999);
  }

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
                          reader.Get(path, 0, sizes.head, nullptr, nullptr));
  const uint64_t size = head.version.size;
  if (!head.ranged && head.bytes.size() != size) {
    return Unimplemented(
        fmt::format("cannot read '{}' in parts: the server knows no ranges, so "
                    "it can be read only as a whole",
                    WithoutQuery(path)));
  }
  if (head.bytes.size() != std::min<uint64_t>(size, sizes.head)) {
    return Unavailable(fmt::format("cannot read '{}': its size is unknown",
                                   WithoutQuery(path)));
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
      reader.Get(path, 0, std::min(limit, sizes.part), nullptr, nullptr));
  const uint64_t wanted = std::min<uint64_t>(limit, piece.version.size);
  if (piece.bytes.size() >= wanted) return std::move(piece.bytes);
  if (!piece.ranged) {
    SLUICE_ASSIGN_OR_RETURN(piece,
                            reader.Get(path, 0, limit, nullptr, nullptr));
    return std::move(piece.bytes);
  }
  const Source source{reader, path, piece.version};
  std::string whole = std::move(piece.bytes);
  // The server may be wrong about the size: no memory and no list of parts for
  // what nobody has seen.
  const uint64_t most = std::min<uint64_t>(1024 * sizes.part, 1 << 30);
  while (whole.size() < wanted) {
    const uint64_t at = whole.size(), more = std::min(most, wanted - at);
    const auto fetch = [&](char* to) -> Result<size_t> {
      SLUICE_RETURN_IF_ERROR(source.FetchInto(at, more, to, sizes));
      return more;
    };
    SLUICE_RETURN_IF_ERROR(GrowText(&whole, more, fetch));
  }
  return whole;
}

}  // namespace sluice::remote
