// How the commands of `sluice data` find and read records.
#ifndef SLUICE_APPS_SLUICE_DATA_RECORDS_H_
#define SLUICE_APPS_SLUICE_DATA_RECORDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "io/records/image_records.h"
#include "io/records/record_files.h"

namespace sluice::tool {

// A file itself; of a folder the shards of all parts, "train" first. Throws
// Error, also for tar archives.
std::vector<std::string> RecordPaths(const std::string& path);

// The picture of a record, as DecodeImage; `image` views into `bytes`. Errors
// name file and byte.
Result<Tensor> ReadPicture(const RecordFiles& files, int64_t record,
                           std::string* bytes, ImageRecord* image);

// What to subtract from labels from `least` to `most` so that they number
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
