// The pictures of a folder of shards: of records (io/records/image_records.h),
// or of tar archives (io/records/tar_files.h), such as WebDataset's.
#ifndef SLUICE_APPS_SHARDS_PICTURE_SHARDS_H_
#define SLUICE_APPS_SHARDS_PICTURE_SHARDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/records/record_files.h"

namespace sluice::shards {

struct ShardPicture {
  std::string encoded;  // JPEG or PNG
  int64_t label = 0;    // as it is there
  std::string name;     // for messages
};

class ShardsInOrder;

// Pictures, numbered from 0 to before size(). Thread-safe. Errors name the
// place.
class PictureShards {
 public:
  virtual ~PictureShards() = default;
  virtual int64_t size() const = 0;
  virtual Result<ShardPicture> Read(int64_t number) const = 0;
  // The label of a picture, which is not decoded, though a record is read with
  // it.
  virtual Result<int64_t> Label(int64_t number) const = 0;
  // Where a picture is, for messages: the file, and the place in it.
  virtual std::string PlaceOf(int64_t number) const = 0;
  // Tells sets of pictures apart.
  virtual Result<std::string> Identity() const = 0;
  virtual const ShardSet& shards() const = 0;
  // The number of pictures of the shard with that number.
  virtual int64_t CountOf(size_t shard) const = 0;
  // The version of that shard when it was opened (ReadableFile::version); empty
  // where it is not known.
  virtual std::string VersionOf(size_t /*shard*/) const { return ""; }
  // How the pictures are read, in words for users; empty: nothing is to be
  // said.
  virtual std::string how() const { return ""; }
  // This, as ShardsInOrder, where the pictures can only be read in order; else
  // null.
  virtual const ShardsInOrder* in_order() const { return nullptr; }
};

struct WhereShards {
  std::string path;  // folder, or pattern of files (io/files/file_pattern.h)
  // Shards that are missing, or hold nothing, are no error.
  bool may_lack = false;
};

// How to read records that are compressed, which no file gives in any order.
enum class IfCompressed : uint8_t {
  kInOrder,   // ShardsInOrder
  kInMemory,  // ShardsInMemory
};

// All functions below throw Error, too, where there are shards of both kinds,
// tar archives and pictures in folders or in a labels.csv, or nothing but
// archives that are called otherwise than shards are, or where a folder cannot
// be listed: only one that is not there has none. They list a folder again only
// once its time has changed, and one of a server never.

// Whether there is a shard of any part, even where others are missing. Throws
// Error where the path is a pattern that no shard fits.
bool HasPictureShards(const std::string& path);
// ReadClassNames (io/records/image_records.h) of the folder that they are in.
std::vector<std::string> ClassNamesBeside(const std::string& path);
// Whether there are the shards of a part; "val" or "test" will do, too, for
// "validation". Throws Error where only some are there.
bool HasPicturePart(const WhereShards& where, std::string_view part);
// Opens the shards of a part. Throws Error where there are none, one of them is
// missing or empty, or they cannot be read.
std::shared_ptr<const PictureShards> OpenPictureShards(const WhereShards& where,
                                                       std::string_view part,
                                                       bool labels_matter,
                                                       int threads,
                                                       IfCompressed how);

}  // namespace sluice::shards

#endif  // SLUICE_APPS_SHARDS_PICTURE_SHARDS_H_
