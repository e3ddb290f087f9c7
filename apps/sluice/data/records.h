// Finds and reads pictures for the commands of `sluice data`, in TFRecord files
// and in tar archives (io/records/tar_files.h), whose samples are their
// records.
#ifndef SLUICE_APPS_SLUICE_DATA_RECORDS_H_
#define SLUICE_APPS_SLUICE_DATA_RECORDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "io/records/image_records.h"
#include "io/records/record_files.h"
#include "io/records/tar_files.h"

namespace sluice::tool {

// Whether a file is a tar archive, by its name or by the magic of its first
// header.
bool IsTar(const std::string& path);

// A file itself; of a folder the shards of all parts, "train" first, TFRecord
// files before tar archives. Throws Error.
std::vector<std::string> RecordPaths(const std::string& path);

// The shards of one part, as FindImageShards (io/records/image_records.h) finds
// them. Throws Error, also where there are both TFRecord files and archives.
std::vector<std::string> PartPaths(const std::string& folder,
                                   const std::string& part);

struct EncodedPicture {
  std::string encoded;  // JPEG or PNG
  int64_t label = 0;    // as it is there
  std::string name;     // for messages
};

// The pictures of files of either kind. Thread-safe.
class PictureFiles {
 public:
  // Errors as RecordFiles::Open's and TarFiles::Open's. `labels` is for
  // archives.
  static Result<std::shared_ptr<const PictureFiles>> Open(
      const std::vector<std::string>& paths, int threads,
      TarLabels labels = TarLabels::kRead);

  int64_t size() const { return records_->size() + tars_->size(); }
  // A picture, 0 to size() - 1: those of TFRecord files first, in the files'
  // order. Errors name file and place.
  Result<EncodedPicture> Read(int64_t i) const;
  // The picture decoded, as by DecodeImage.
  Result<Tensor> Decode(int64_t i, const EncodedPicture& picture) const;
  std::string PlaceOf(int64_t i) const;
  std::vector<std::string> EmptyFiles() const;

 private:
  PictureFiles() = default;

  std::vector<std::string> record_paths_, tar_paths_;
  std::shared_ptr<const RecordFiles> records_;
  std::shared_ptr<const TarFiles> tars_;
};

// The number to subtract from labels from `least` to `most` so that they number
// classes from 0: 1 where they run from 1 to the number of classes. `classes`
// is 0 where that is not known: then 1 where none is 0.
inline int64_t LabelOffset(int64_t least, int64_t most, int64_t classes) {
  return least == 1 && (classes == 0 || most == classes) ? 1 : 0;
}

struct LabelRange {
  int64_t least = 0, most = -1;  // none
  int64_t offset = 0;            // LabelOffset

  // "labels 0 to 9"
  std::string ToString() const;
};

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_RECORDS_H_
