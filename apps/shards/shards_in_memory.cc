#include "apps/shards/shards_in_memory.h"

#include <fmt/format.h>

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "io/files/crc32c.h"
#include "io/files/file_version.h"
#include "io/files/open_files.h"
#include "io/files/without_query.h"
#include "io/records/file_datasets.h"
#include "io/records/image_records.h"

namespace sluice::shards {
namespace {

Result<ShardPicture> PictureIn(std::string_view record,
                               const std::string& place) {
  const Result<ImageRecord> image = ParseImageRecord(record);
  if (!image.ok()) return image.status().WithContext(place);
  return ShardPicture{std::string(image->encoded), image->label, image->name()};
}

// Another one once a file has changed; none where that cannot be told.
Result<std::string> VersionOfAll(const ShardSet& shards, int threads) {
  std::vector<std::string> versions(shards.paths.size());
  SLUICE_RETURN_IF_ERROR(
      ForEachFile(versions.size(), threads, [&](size_t i) -> Status {
        SLUICE_ASSIGN_OR_RETURN(versions[i], FileVersion(shards.paths[i]));
        return {};
      }));
  std::string version = std::to_string(shards.count);
  for (size_t i = 0; i < versions.size(); ++i) {
    version += fmt::format("\n{}\n{}", shards.paths[i], versions[i]);
  }
  return version;
}

}  // namespace

struct ShardsInMemory::Shard {
  std::vector<Held> held;
  uint32_t checksum = 0;  // of its records
};

Result<std::shared_ptr<const ShardsInMemory>> ShardsInMemory::Open(
    ShardSet shards, int threads) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const ShardsInMemory>> open;
  // A start asks for the same ones again and again.
  static std::shared_ptr<const ShardsInMemory> newest;
  const Result<std::string> version = VersionOfAll(shards, threads);
  if (!version.ok()) return ReadAll(std::move(shards), threads);
  const std::lock_guard lock(mutex);  // the others wait for what they need
  if (auto known = open[*version].lock()) return known;
  newest = nullptr;
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<const ShardsInMemory> read,
                          ReadAll(std::move(shards), threads));
  open[*version] = newest = read;
  return read;
}

Result<std::shared_ptr<const ShardsInMemory>> ShardsInMemory::ReadAll(
    ShardSet shards, int threads) {
  constexpr size_t kMost = size_t{2} << 30;
  std::shared_ptr<ShardsInMemory> opened(new ShardsInMemory(std::move(shards)));
  const std::vector<std::string>& paths = opened->shards_.paths;
  std::vector<Shard> read(paths.size());
  std::atomic<size_t> bytes = 0;
  const auto read_all = [&](size_t i) -> Status {
    Iterator records =
        datasets::Records({paths[i]}, {.places = true}).MakeIterator();
    for (Example record;;) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, records.Next(&record));
      if (!more) return {};
      const std::string_view text = BytesOf(record["bytes"]);
      if ((bytes += text.size()) > kMost) {
        return ResourceExhausted(fmt::format(
            "'{}': the records are compressed, and more than the 2 GiB that "
            "are held in memory then: decompress them",
            paths[i]));
      }
      read[i].checksum = Crc32c(text, read[i].checksum);
      std::string place(BytesOf(record["place"]));
      Result<ShardPicture> picture = PictureIn(text, place);
      read[i].held.push_back({std::move(place), std::move(picture)});
    }
  };
  SLUICE_RETURN_IF_ERROR(ForEachFile(paths.size(), threads, read_all));
  std::string text;
  for (size_t i = 0; i < paths.size(); ++i) {
    std::vector<Held>& held = read[i].held;
    text += fmt::format("{} {} {:08x}\n", FileNameOf(paths[i]), held.size(),
                        read[i].checksum);
    opened->counts_.push_back(static_cast<int64_t>(held.size()));
    std::move(held.begin(), held.end(), std::back_inserter(opened->held_));
  }
  opened->identity_ = fmt::format("records-{:08x}", Crc32c(text));
  return std::shared_ptr<const ShardsInMemory>(std::move(opened));
}

Result<ShardPicture> ShardsInMemory::Read(int64_t number) const {
  return held_[number].picture;
}

Result<int64_t> ShardsInMemory::Label(int64_t number) const {
  const Result<ShardPicture>& picture = held_[number].picture;
  if (!picture.ok()) return picture.status();
  return picture->label;
}

std::string ShardsInMemory::PlaceOf(int64_t number) const {
  return held_[number].place;
}

}  // namespace sluice::shards
