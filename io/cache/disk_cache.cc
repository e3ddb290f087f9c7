#include "io/cache/disk_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/semantics/random.h"
#include "engine/thread_annotations.h"
#include "io/cache/cache_segment.h"
#include "io/cache/disk_cache_folder.h"

namespace sluice {
namespace {

constexpr size_t kMostOpen = 64;

// A segment is written anew without what nobody wants of it where that is this
// part of it at least: what is written is then at most three times what is won.
constexpr uint64_t kLeastWon = 4;  // one in so many bytes
// Where there is no room, that is looked for again once so much of the limit
// has turned out to be unwanted since.
constexpr uint64_t kLookAgain = 16;  // one in so many bytes

class OnDisk : public ExampleCache {
 public:
  OnDisk(const std::string& folder, std::string_view key, uint64_t max_bytes,
         FileSystem& files, bool keeps_more)
      : files_(files),
        path_(folder),
        max_bytes_(max_bytes),
        head_(IndexHead(key)),
        folder_(folder, HashName(key), max_bytes, files, keeps_more) {
    {
      MutexLock writing(writing_);
      const Result<uint64_t> entered = folder_.Enter();
      if (entered.ok()) {
        removed_bytes_ = *entered;
      } else {
        Stop(entered.status());
      }
      MutexLock lock(learning_);
      BeginSegment();
    }
    Refresh();
  }

  using ExampleCache::Find;
  std::optional<Example> Find(int64_t number, const Accepts& accepts) override {
    while (const auto place = PlaceOf(number)) {
      thread_local std::string buffer;
      const auto file = FileOf(*place);
      auto example = file == nullptr ? std::nullopt
                                     : ReadExample(number, *file, place->offset,
                                                   place->bytes, &buffer);
      if (example && (!accepts || accepts(*example))) return example;
      Forget(number, *place);
    }
    return std::nullopt;
  }

  void Add(int64_t number, const Example& example) override {
    if (stopped() || full() || PlaceOf(number)) return;
    const std::string record = RecordOf(number, example);
    MutexLock lock(writing_);
    if (stopped()) return;
    Status room = Reserve(record.size());
    if (room.code() == Code::kResourceExhausted && Compact()) {
      room = Reserve(record.size());
    }
    if (room.code() == Code::kResourceExhausted) return NoteFull(room);
    if (room.ok()) {
      NoteRoom();
      room = Append(number, record);
    }
    if (!room.ok()) Stop(room);
  }

  void Refresh() override {
    MutexLock lock(learning_);
    for (const std::string& path : folder_.Segments()) {
      const auto [at, is_new] = segments_.try_emplace(path);
      if (is_new) at->second.path = path;
      Learn(&at->second);
    }
  }

  int64_t size() const override {
    MutexLock lock(mutex_);
    int64_t numbers = 0;
    for (auto at = places_.begin(); at != places_.end();) {
      ++numbers;
      at = places_.equal_range(at->first).second;
    }
    return numbers;
  }

  std::string Trouble() const override {
    MutexLock lock(mutex_);
    return trouble_;
  }

  uint64_t removed_bytes() const override { return removed_bytes_; }

 private:
  struct Segment {
    std::string path;  // of its files, without what follows the dot
    IndexReader index;
    bool ours = false;   // nothing is to be learnt from its index
    bool known = false;  // whether there are places in it
    bool gone = false;   // written anew
    // Null: opened to be read. Guarded by mutex_.
    std::shared_ptr<const ReadableFile> examples = nullptr;
  };
  struct Place {
    Segment* segment;
    uint64_t offset, bytes;
    bool operator==(const Place&) const = default;
  };
  using Wanted = std::vector<std::pair<int64_t, Place>>;

  bool stopped() const {
    MutexLock lock(mutex_);
    return stopped_;
  }

  void Stop(const Status& why) {
    NoteTrouble(why);
    MutexLock lock(mutex_);
    stopped_ = true;
  }

  void NoteTrouble(const Status& why) {
    MutexLock lock(mutex_);
    if (!trouble_.empty()) return;
    trouble_ = fmt::format("no more examples are kept in '{}': {}", path_,
                           why.message());
  }

  // Whether there was no room, and looking for it again would be in vain.
  bool full() const {
    MutexLock lock(mutex_);
    return full_ && forgotten_ < max_bytes_ / kLookAgain;
  }

  void NoteFull(const Status& why) {
    NoteTrouble(why);
    MutexLock lock(mutex_);
    full_ = true;
    forgotten_ = 0;
  }

  void NoteRoom() {
    MutexLock lock(mutex_);
    full_ = false;
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
    if (found == end) return;
    places_.erase(found);
    forgotten_ += place.bytes;
  }

  // Null where it cannot be opened.
  std::shared_ptr<const ReadableFile> FileOf(const Place& place) const {
    {
      MutexLock lock(mutex_);
      if (place.segment->examples != nullptr) return place.segment->examples;
    }
    auto opened = files_.OpenRead(ExamplesPath(place.segment->path));
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  // A record, or what of it can be read; valid until the buffer changes, which
  // grows if need be.
  std::string_view Read(const Place& place, std::string* buffer) const {
    const auto file = FileOf(place);
    if (file == nullptr) return {};
    if (buffer->size() < place.bytes) {
      buffer->clear();  // there is nothing to move
      buffer->resize(place.bytes);
    }
    const auto got = file->ReadAt(place.offset, buffer->data(), place.bytes);
    return std::string_view(*buffer).substr(0, got.ok() ? *got : 0);
  }

  void Learn(Segment* segment) REQUIRES(learning_) {
    if (segment->ours || segment->gone) return;
    const auto entries = segment->index.ReadOn(segment->path, head_, files_);
    if (entries.empty()) return;
    std::shared_ptr<const ReadableFile> examples;
    if (!segment->known && open_ < kMostOpen) {
      auto opened = files_.OpenRead(ExamplesPath(segment->path));
      if (opened.ok()) {
        examples = *std::move(opened);
        ++open_;
      }
    }
    segment->known = true;
    MutexLock lock(mutex_);
    if (examples != nullptr) segment->examples = std::move(examples);
    for (const auto& [number, offset, bytes] : entries) {
      places_.emplace(number, Place{segment, offset, bytes});
    }
  }

  void BeginSegment() REQUIRES(writing_, learning_) {
    own_ = &segments_[folder_.own()];
    own_->path = folder_.own();
    own_->ours = true;
    writer_.emplace(own_->path, head_, files_);
  }

  Status Reserve(uint64_t record_bytes) REQUIRES(writing_) {
    return folder_.Reserve(writer_->BytesWith(record_bytes));
  }

  Status Append(int64_t number, const std::string& record) REQUIRES(writing_) {
    SLUICE_ASSIGN_OR_RETURN(const IndexEntry entry,
                            writer_->Append(number, record));
    MutexLock lock(mutex_);
    own_->examples = writer_->examples();
    places_.emplace(number, Place{own_, entry.offset, entry.bytes});
    return {};
  }

  // What is wanted of each segment: of each number the first place.
  std::map<const Segment*, Wanted> WantedPlaces() const {
    MutexLock lock(mutex_);
    std::map<const Segment*, Wanted> wanted;
    for (auto at = places_.begin(); at != places_.end();) {
      wanted[at->second.segment].push_back(*at);
      at = places_.equal_range(at->first).second;
    }
    return wanted;
  }

  // Whether it is worth while to write a segment of so many bytes anew.
  bool IsWorthwhile(uint64_t bytes, const Wanted& wanted) const {
    uint64_t kept = head_.size();
    for (const auto& [number, place] : wanted) {
      kept += place.bytes + kEntryBytes;
    }
    const uint64_t won = bytes - std::min(bytes, kept);
    return won > 0 && won >= bytes / kLeastWon;
  }

  // Writes segments of this key anew that nobody adds to any more, without what
  // was forgotten of them or is elsewhere. Whether there is more room then.
  bool Compact() REQUIRES(writing_) {
    Refresh();
    MutexLock lock(learning_);
    auto wanted = WantedPlaces();
    if (IsWorthwhile(writer_->bytes(), wanted[own_])) {
      if (!folder_.BeginSegment().ok()) return false;
      BeginSegment();
    }
    const auto idle = folder_.IdleSegments();
    if (!idle.ok()) return false;
    bool won = false;
    for (const auto& [path, bytes] : *idle) {
      const auto found = segments_.find(path);
      if (found == segments_.end()) {
        won = RemoveRemains(path) || won;
        continue;
      }
      Segment& segment = found->second;
      if (segment.gone || !(segment.ours || segment.index.is_ours())) continue;
      const Wanted& places = wanted[&segment];
      if (IsWorthwhile(bytes, places)) won = Move(&segment, places) || won;
    }
    return won;
  }

  // Of a segment whose index is gone. Whether there were some.
  bool RemoveRemains(const std::string& path) const {
    const Result<bool> indexed = files_.Exists(IndexPath(path));
    return indexed.ok() && !*indexed && folder_.RemoveSegment(path).ok();
  }

  // Puts what is wanted of a segment into ours and removes it. False where it
  // cannot be removed, or another process has done so.
  bool Move(Segment* segment, const Wanted& places)
      REQUIRES(writing_, learning_) {
    auto opened = files_.OpenRead(ExamplesPath(segment->path));
    // First, as there may be no room for both. What is open can be read on.
    if (!opened.ok() || !folder_.RemoveSegment(segment->path).ok()) {
      return false;
    }
    {
      MutexLock lock(mutex_);
      if (!segment->ours && segment->examples != nullptr) --open_;
      segment->examples = *std::move(opened);
    }
    std::string buffer;
    for (const auto& [number, place] : places) {
      const std::string record(Read(place, &buffer));
      if (!ExampleOf(number, record)) continue;  // it is damaged
      if (!Reserve(record.size()).ok()) break;
      if (const Status kept = Append(number, record); !kept.ok()) {
        Stop(kept);
        break;
      }
    }
    segment->gone = true;
    MutexLock lock(mutex_);
    std::erase_if(places_, [segment](const auto& entry) {
      return entry.second.segment == segment;
    });
    segment->examples = nullptr;
    return true;
  }

  FileSystem& files_;
  const std::string path_;
  const uint64_t max_bytes_;
  const std::string head_;  // of an index of this key
  uint64_t removed_bytes_ = 0;

  // They are locked in this order.
  Mutex writing_;
  Mutex learning_;
  mutable Mutex mutex_;

  DiskCacheFolder folder_;  // changed while writing_ is held
  std::optional<SegmentWriter> writer_ GUARDED_BY(writing_);
  // That it adds to; changed while learning_ is held as well.
  Segment* own_ GUARDED_BY(writing_) = nullptr;
  std::map<std::string, Segment> segments_ GUARDED_BY(learning_);  // by path
  size_t open_ GUARDED_BY(learning_) = 0;

  // Of what several have added there are several: one of them may be damaged.
  std::unordered_multimap<int64_t, Place> places_ GUARDED_BY(mutex_);
  std::string trouble_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
  bool full_ GUARDED_BY(mutex_) = false;
  uint64_t forgotten_ GUARDED_BY(mutex_) = 0;  // bytes, since it was full
};

}  // namespace

std::unique_ptr<ExampleCache> DiskCache(const std::string& folder,
                                        std::string_view key,
                                        uint64_t max_bytes, FileSystem& files,
                                        bool keeps_more) {
  return std::make_unique<OnDisk>(folder, key, max_bytes, files, keeps_more);
}

}  // namespace sluice
