// Shards of records that are compressed, which can only be read from their
// begin on.
#ifndef SLUICE_APPS_SHARDS_SHARDS_IN_ORDER_H_
#define SLUICE_APPS_SHARDS_SHARDS_IN_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/shards/picture_shards.h"
#include "io/pipeline/dataset.h"
#include "io/records/file_datasets.h"

namespace sluice::shards {

// Knows the first pictures of each shard, about 1,000 together, by numbers from
// 0: Label and PlaceOf are of these, and nothing can be Read. size() is what
// the manifest beside all shards says (datasets::Records), or
// kUnknownCardinality. Thread-safe.
class ShardsInOrder : public PictureShards {
 public:
  // Reads these first pictures, whose errors it has.
  static Result<std::shared_ptr<const ShardsInOrder>> Open(ShardSet shards,
                                                           int threads);

  int64_t size() const override { return size_; }
  Result<ShardPicture> Read(int64_t number) const override;
  Result<int64_t> Label(int64_t number) const override;
  std::string PlaceOf(int64_t number) const override;
  Result<std::string> Identity() const override { return identity_; }
  const ShardSet& shards() const override { return shards_; }
  // The number of pictures of a shard that are known.
  int64_t CountOf(size_t shard) const override { return counts_[shard]; }
  std::string how() const override {
    return "compressed, so that they are read in order";
  }
  const ShardsInOrder* in_order() const override { return this; }

  // The number of pictures that are known.
  int64_t known() const { return static_cast<int64_t>(known_.size()); }
  // All records: "bytes" and "place" of datasets::Records.
  Dataset Records(const FileOptions& options) const;

 private:
  struct Known {
    std::string place;
    Result<int64_t> label;
  };
  struct Beginning;

  explicit ShardsInOrder(ShardSet shards) : shards_(std::move(shards)) {}

  const ShardSet shards_;
  std::vector<int64_t> counts_;
  std::vector<Known> known_;
  std::string identity_;
  int64_t size_ = 0;
};

}  // namespace sluice::shards

#endif  // SLUICE_APPS_SHARDS_SHARDS_IN_ORDER_H_
