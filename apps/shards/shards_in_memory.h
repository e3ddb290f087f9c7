// Shards of records that are compressed and small enough to be held.
#ifndef SLUICE_APPS_SHARDS_SHARDS_IN_MEMORY_H_
#define SLUICE_APPS_SHARDS_SHARDS_IN_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/shards/picture_shards.h"

namespace sluice::shards {

// All pictures, which are read once, so that they can be had in any order.
// Thread-safe.
class ShardsInMemory : public PictureShards {
 public:
  // Reads all shards; the error of a record that holds no picture is Read's.
  // Files that somebody still has open here, or that were read last, are not
  // read again unless they have changed. kResourceExhausted beyond 2 GiB of
  // records; errors of datasets::Records.
  static Result<std::shared_ptr<const ShardsInMemory>> Open(ShardSet shards,
                                                            int threads);

  int64_t size() const override { return static_cast<int64_t>(held_.size()); }
  Result<ShardPicture> Read(int64_t number) const override;
  Result<int64_t> Label(int64_t number) const override;
  std::string PlaceOf(int64_t number) const override;
  Result<std::string> Identity() const override { return identity_; }
  const ShardSet& shards() const override { return shards_; }
  int64_t CountOf(size_t shard) const override { return counts_[shard]; }
  std::string how() const override {
    return "compressed, so that they are held in memory";
  }

 private:
  struct Held {
    std::string place;
    Result<ShardPicture> picture;
  };
  struct Shard;

  explicit ShardsInMemory(ShardSet shards) : shards_(std::move(shards)) {}

  static Result<std::shared_ptr<const ShardsInMemory>> ReadAll(ShardSet shards,
                                                               int threads);

  const ShardSet shards_;
  std::vector<int64_t> counts_;
  std::vector<Held> held_;
  std::string identity_;
};

}  // namespace sluice::shards

#endif  // SLUICE_APPS_SHARDS_SHARDS_IN_MEMORY_H_
