#include "apps/shards/shards_in_order.h"

#include <fmt/format.h>

#include <utility>

#include "engine/ceil_div.h"
#include "io/files/crc32c.h"
#include "io/files/file.h"
#include "io/files/open_files.h"
#include "io/files/without_query.h"
#include "io/records/image_records.h"

namespace sluice::shards {

// Of a shard.
struct ShardsInOrder::Beginning {
  std::vector<Known> known;
  std::string identity;
};

Result<std::shared_ptr<const ShardsInOrder>> ShardsInOrder::Open(
    ShardSet shards, int threads) {
  constexpr int64_t kKnown = 1000;       // of all shards, or one of each
  constexpr size_t kTelling = 64 << 10;  // a shard's bytes, beside its size
  std::shared_ptr<ShardsInOrder> opened(new ShardsInOrder(std::move(shards)));
  const std::vector<std::string>& paths = opened->shards_.paths;
  const int64_t each = CeilDiv<int64_t>(
      kKnown, std::max<int64_t>(static_cast<int64_t>(paths.size()), 1));
  std::vector<Beginning> beginnings(paths.size());
  const auto look = [&](size_t i) -> Status {
    FileSystem& files = FileSystem::Default();
    SLUICE_ASSIGN_OR_RETURN(const size_t size, files.Size(paths[i]));
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes,
                            files.ReadPrefix(paths[i], kTelling));
    beginnings[i].identity = fmt::format("{} {} {:08x}\n", FileNameOf(paths[i]),
                                         size, Crc32c(bytes));
    Iterator records =
        datasets::Records({paths[i]}, {.places = true}).MakeIterator();
    Example record;
    for (int64_t n = 0; n < each; ++n) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, records.Next(&record));
      if (!more) break;
      const Result<ImageRecord> image =
          ParseImageRecord(BytesOf(record["bytes"]));
      std::string place(BytesOf(record["place"]));
      Result<int64_t> label =
          image.ok() ? Result<int64_t>(image->label)
                     : Result<int64_t>(image.status().WithContext(place));
      beginnings[i].known.push_back({std::move(place), std::move(label)});
    }
    return {};
  };
  SLUICE_RETURN_IF_ERROR(ForEachFile(paths.size(), threads, look));
  std::string text;
  for (Beginning& beginning : beginnings) {
    text += beginning.identity;
    opened->counts_.push_back(static_cast<int64_t>(beginning.known.size()));
    std::move(beginning.known.begin(), beginning.known.end(),
              std::back_inserter(opened->known_));
  }
  opened->identity_ = fmt::format("records-{:08x}", Crc32c(text));
  opened->size_ = opened->Records({}).cardinality();
  return std::shared_ptr<const ShardsInOrder>(std::move(opened));
}

Result<ShardPicture> ShardsInOrder::Read(int64_t /*number*/) const {
  return Unimplemented("the records are compressed: they are read in order");
}

Result<int64_t> ShardsInOrder::Label(int64_t number) const {
  return known_[number].label;
}

std::string ShardsInOrder::PlaceOf(int64_t number) const {
  return known_[number].place;
}

Dataset ShardsInOrder::Records(const FileOptions& options) const {
  FileOptions with_places = options;
  with_places.places = true;
  return datasets::Records(shards_.paths, with_places);
}

}  // namespace sluice::shards
