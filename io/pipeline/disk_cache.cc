#include "io/pipeline/disk_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/thread_annotations.h"
#include "io/files/record.h"
#include "io/pipeline/disk_cache_folder.h"
#include "io/pipeline/example_bytes.h"

namespace sluice {
namespace {

// A segment is what one DiskCache has added, in two files of records
// (io/files/record.h), which are only ever appended to:
//
//   examples := record(number example)*     io/pipeline/example_bytes.h
//   index    := record(kFormat key) record(number offset bytes)*
//
// An entry of the index is appended when its example's record has been; all
// have the same size, so that a damaged one hides no other. Numbers are 64 bits
// in the machine's byte order.
constexpr std::string_view kFormat = "sluice cached examples 1\n";

struct IndexEntry {
  int64_t number;
  uint64_t offset, bytes;  // of the record in the examples
};
constexpr size_t kEntryBytes = sizeof(IndexEntry) + kRecordFrameBytes;
constexpr size_t kLeastRecordBytes = kRecordFrameBytes + sizeof(int64_t);
constexpr size_t kEntriesAtOnce = 4096;

constexpr size_t kMostOpen = 64;

// FNV-1a. Only names files by it: the index has the whole key.
uint64_t HashOf(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : key) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}

std::string IndexHead(std::string_view key) {
  std::string head;
  AppendRecord(std::string(kFormat).append(key), &head);
  return head;
}

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string RecordOf(int64_t number, const Example& example) {
  std::string payload(BytesOf(number)), record;
  AppendExampleBytes(example, &payload);
  AppendRecord(payload, &record);
  return record;
}

// The example of a record that should be the number's.
std::optional<Example> ExampleOf(int64_t number, std::string_view record) {
  const auto payload = RecordPayload(record);
  if (!payload.ok() || payload->size() + kRecordFrameBytes != record.size() ||
      !payload->starts_with(BytesOf(number))) {
    return {};
  }
  auto example = ParseExampleBytes(payload->substr(sizeof(number)));
  if (!example.ok()) return {};
  return *std::move(example);
}

std::string ExamplesPath(const std::string& segment) {
  return segment + ".examples";
}
std::string IndexPath(const std::string& segment) {
  return segment + ".index";
}

// Where examples are, of one index; reads on as the index grows.
class IndexReader {
 public:
  // The entries that came since, whose records are in the file of examples.
  std::vector<IndexEntry> ReadOn(const std::string& segment,
                                 std::string_view head, FileSystem& files) {
    std::vector<IndexEntry> entries;
    const auto index = files.OpenRead(IndexPath(segment));
    if (!index.ok() || !CheckHead(**index, head)) return entries;
    ReadEntries(**index, &entries);
    // Looked up when the entries have been read: then it has their records.
    const auto size = files.Size(ExamplesPath(segment));
    const uint64_t end = size.ok() ? *size : 0;
    std::erase_if(entries, [end](const IndexEntry& entry) {
      return entry.bytes < kLeastRecordBytes || entry.offset > end ||
             entry.bytes > end - entry.offset;
    });
    return entries;
  }

 private:
  // False where the index is another key's, or not whole yet.
  bool CheckHead(const ReadableFile& index, std::string_view head) {
    if (position_ > 0) return true;
    std::string bytes(head.size(), '\0');
    const auto got = index.ReadAt(0, bytes.data(), bytes.size());
    if (!got.ok() || *got < head.size() || bytes != head) return false;
    position_ = head.size();
    return true;
  }

  void ReadEntries(const ReadableFile& index,
                   std::vector<IndexEntry>* entries) {
    std::string bytes;
    for (size_t whole = 1; whole > 0; position_ += whole * kEntryBytes) {
      bytes.resize(kEntriesAtOnce * kEntryBytes);
      const auto got = index.ReadAt(position_, bytes.data(), bytes.size());
      whole = got.ok() ? *got / kEntryBytes : 0;
      for (size_t i = 0; i < whole; ++i) {
        const auto payload = RecordPayload(
            std::string_view(bytes).substr(i * kEntryBytes, kEntryBytes));
        IndexEntry entry{};
        if (!payload.ok() || payload->size() != sizeof(entry)) continue;
        std::memcpy(&entry, payload->data(), sizeof(entry));
        entries->push_back(entry);
      }
    }
  }

  uint64_t position_ = 0;  // behind the last whole entry; 0: before the head
};

class OnDisk : public ExampleCache {
 public:
  OnDisk(const std::string& folder, std::string_view key, uint64_t max_bytes,
         FileSystem& files)
      : files_(files),
        path_(folder),
        head_(IndexHead(key)),
        folder_(folder, HashOf(key), max_bytes, files),
        own_{folder_.own(), nullptr} {
    {
      MutexLock lock(writing_);
      if (const Status entered = folder_.Enter(); !entered.ok()) Stop(entered);
    }
    Refresh();
  }

  std::optional<Example> Find(int64_t number) override {
    while (const auto place = PlaceOf(number)) {
      if (auto example = Read(number, *place)) return example;
      Forget(number, *place);
    }
    return std::nullopt;
  }

  void Add(int64_t number, const Example& example) override {
    if (stopped() || PlaceOf(number)) return;
    const std::string record = RecordOf(number, example);
    MutexLock lock(writing_);
    if (stopped()) return;
    // A record that was torn stays the end of its file: what came behind it
    // would not be where the index says.
    if (const Status kept = Append(number, record); !kept.ok()) Stop(kept);
  }

  void Refresh() override {
    MutexLock lock(learning_);
    for (const std::string& path : folder_.Segments()) {
      if (path == own_.path) continue;
      const auto [at, is_new] = others_.try_emplace(path);
      if (is_new) at->second.segment.path = path;
      Learn(&at->second);
    }
  }

  std::string Trouble() const override {
    MutexLock lock(mutex_);
    return trouble_;
  }

 private:
  struct Segment {
    std::string path;  // of its files, without what follows the dot
    std::shared_ptr<const ReadableFile> examples;  // null: opened to be read
  };
  struct Other {
    Segment segment;
    IndexReader index;
    bool known = false;  // whether there are places in it
  };
  struct Place {
    const Segment* segment;
    uint64_t offset, bytes;
    bool operator==(const Place&) const = default;
  };

  bool stopped() const { return !Trouble().empty(); }

  void Stop(const Status& why) {
    MutexLock lock(mutex_);
    if (!trouble_.empty()) return;
    trouble_ = fmt::format("no more examples are kept in '{}': {}", path_,
                           why.message());
  }

  std::optional<Place> PlaceOf(int64_t number) const {
    MutexLock lock(mutex_);
    const auto found = places_.find(number);
    if (found == places_.end()) return std::nullopt;
    return found->second;
  }

  void Forget(int64_t number, const Place& place) {
    MutexLock lock(mutex_);
    const auto [begin, end] = places_.equal_range(number);
    const auto found = std::find_if(
        begin, end, [&](const auto& entry) { return entry.second == place; });
    if (found != end) places_.erase(found);
  }

  std::optional<Example> Read(int64_t number, const Place& place) const {
    std::shared_ptr<const ReadableFile> file = place.segment->examples;
    if (file == nullptr) {
      auto opened = files_.OpenRead(ExamplesPath(place.segment->path));
      if (!opened.ok()) return std::nullopt;
      file = *std::move(opened);
    }
    std::string record(place.bytes, '\0');
    const auto got = file->ReadAt(place.offset, record.data(), record.size());
    if (!got.ok() || *got < record.size()) return std::nullopt;
    return ExampleOf(number, record);
  }

  void Learn(Other* other) REQUIRES(learning_) {
    Segment& segment = other->segment;
    const auto entries = other->index.ReadOn(segment.path, head_, files_);
    if (entries.empty()) return;
    // Before a place in it is known to others: after that it never changes.
    if (!other->known && open_ < kMostOpen) {
      auto opened = files_.OpenRead(ExamplesPath(segment.path));
      if (opened.ok()) {
        segment.examples = *std::move(opened);
        ++open_;
      }
    }
    other->known = true;
    MutexLock lock(mutex_);
    for (const auto& [number, offset, bytes] : entries) {
      places_.emplace(number, Place{&segment, offset, bytes});
    }
  }

  Status Append(int64_t number, const std::string& record) REQUIRES(writing_) {
    const size_t head = index_ == nullptr ? head_.size() : 0;
    const uint64_t bytes = head + record.size() + kEntryBytes;
    SLUICE_RETURN_IF_ERROR(folder_.Reserve(written_ + bytes));
    if (index_ == nullptr) SLUICE_RETURN_IF_ERROR(Create());
    const IndexEntry entry = {number, offset_, record.size()};
    std::string entry_record;
    AppendRecord(BytesOf(entry), &entry_record);
    SLUICE_RETURN_IF_ERROR(examples_->Append(record));
    SLUICE_RETURN_IF_ERROR(index_->Append(entry_record));
    written_ += bytes;
    offset_ += record.size();
    MutexLock lock(mutex_);
    places_.emplace(number, Place{&own_, entry.offset, entry.bytes});
    return {};
  }

  Status Create() REQUIRES(writing_) {
    SLUICE_ASSIGN_OR_RETURN(examples_, files_.Create(ExamplesPath(own_.path)));
    SLUICE_ASSIGN_OR_RETURN(own_.examples,
                            files_.OpenRead(ExamplesPath(own_.path)));
    SLUICE_ASSIGN_OR_RETURN(index_, files_.Create(IndexPath(own_.path)));
    return index_->Append(head_);
  }

  FileSystem& files_;
  const std::string path_;
  const std::string head_;  // of an index of this key

  // Where both are locked, mutex_ is the second.
  Mutex learning_;
  std::map<std::string, Other> others_ GUARDED_BY(learning_);  // by path
  size_t open_ GUARDED_BY(learning_) = 0;

  Mutex writing_;
  DiskCacheFolder folder_;  // changed while writing_ is held
  Segment own_;             // its file is set before a place in it is known
  std::unique_ptr<WritableFile> examples_ GUARDED_BY(writing_);
  std::unique_ptr<WritableFile> index_ GUARDED_BY(writing_);
  uint64_t offset_ GUARDED_BY(writing_) = 0;   // behind the last example
  uint64_t written_ GUARDED_BY(writing_) = 0;  // bytes of both files

  mutable Mutex mutex_;
  // Of what several have added there are several: one of them may be damaged.
  std::unordered_multimap<int64_t, Place> places_ GUARDED_BY(mutex_);
  std::string trouble_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ExampleCache> DiskCache(const std::string& folder,
                                        std::string_view key,
                                        uint64_t max_bytes, FileSystem& files) {
  return std::make_unique<OnDisk>(folder, key, max_bytes, files);
}

}  // namespace sluice
