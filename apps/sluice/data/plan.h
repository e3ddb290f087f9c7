// Which pictures `sluice data make` writes into which shard. In OUT there are,
// for a part of N shards:
//   labels.txt                names of the classes, where they have any
//   PART.json                 the plan, before any shard; with --resize N that,
//                             too
//   PART-00000-of-0000N       a shard, whole once it has this name,
//   PART-00000-of-0000N.idx   and where its records are: after it
//   data.lock                 kDataLock, held by who writes
// So a run that ended at any instant can be taken up by another one. What tells
// pictures apart is their names, labels and sizes: one that was changed in
// place and has as many bytes as before is taken for the same.
#ifndef SLUICE_APPS_SLUICE_DATA_PLAN_H_
#define SLUICE_APPS_SLUICE_DATA_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/sources/image_list.h"

namespace sluice::tool {

// The lock in OUT, held while somebody writes there.
inline constexpr char kDataLock[] = "data.lock";

// Immutable but for the number of shards; then thread-safe. Functions that
// return no Status throw Error.
class DataPlan {
 public:
  // Shuffles the list, always in the same way, and asks for the files' sizes.
  // `base` is OUT/PART. Pictures are written as MakeSmaller makes them for
  // `resize`; where that is 0, as they are.
  DataPlan(ImageList list, std::string base, int64_t resize);

  // Cuts the pictures into `shards`; 0: as many as PART.json has of the same
  // pictures, or else one for each 128 MB of pictures, as large as they are
  // now. What was written before must be shards of this plan, resized alike:
  // kFailedPrecondition, saying what to do. Only looks.
  void Cut(int64_t shards);
  // Writes PART.json.
  void Save() const;

  const ImageList& list() const { return list_; }
  int64_t records() const { return static_cast<int64_t>(order_.size()); }
  int64_t shards() const { return shards_; }
  // A shard's first record.
  int64_t Begin(int64_t shard) const { return records() * shard / shards_; }
  std::string PathOf(int64_t shard) const;
  // Has it been written, with its .idx, and does it have all its records?
  bool IsWhole(int64_t shard) const;
  // The place in the list of a record's picture.
  int64_t PictureOf(int64_t record) const { return order_[record]; }
  // Whether Record would take the picture, by its first bytes.
  Status CheckBeginning(int64_t record) const;
  // A record's payload. Errors name the picture.
  Result<std::string> Record(int64_t record) const;

 private:
  std::string Path() const { return base_ + ".json"; }
  int64_t DefaultShards() const;
  Result<std::string> Encode(int64_t record, std::string_view picture) const;
  // A checksum of its pictures' names, labels and sizes.
  std::string IdentityOf(int64_t shard) const;
  // Are these all shards' identities, in this order?
  bool AreOfAll(const std::vector<std::string>& identities) const;
  void CheckShards(const std::vector<std::string>& there,
                   const std::vector<std::string>& identities) const;
  // Files that are shards of the part by their names, whoever wrote them.
  std::vector<std::string> ShardsThere() const;
  // The contents of PART.json; empty if it is damaged or missing.
  struct Saved {
    std::vector<std::string> identities;  // of the shards
    int64_t resize = 0;
  };
  Saved Load() const;
  // The error that ends with what to do about it: `first`, or start anew.
  [[noreturn]] void Refuse(const std::string& why,
                           const std::string& first = "") const;

  const ImageList list_;
  const std::string base_;
  const int64_t resize_;
  std::vector<uint32_t> order_;  // of the list's pictures
  std::vector<int64_t> sizes_;   // in this order, bytes; -1: unknown
  int64_t shards_ = 1;
};

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_PLAN_H_
