// Pictures with their classes as TFRecord files of tf.Examples.
#ifndef SLUICE_IO_RECORDS_IMAGE_RECORDS_H_
#define SLUICE_IO_RECORDS_IMAGE_RECORDS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/records/record_files.h"

namespace SLUICE_PUBLIC sluice {

// Views into the bytes that were parsed.
struct ImageRecord {
  std::string_view encoded;  // JPEG or PNG
  int64_t label = 0;         // as it is in the record, where some begin at 1
  std::string_view class_name = {}, file = {};  // empty where there is none

  // What messages call the picture.
  std::string name() const {
    return std::string(file.empty() ? "picture" : file);
  }
};

// One record, in the features of TensorFlow's ImageNet scripts or in those of
// TensorFlow Datasets:
//   image/encoded  image/class/label  image/class/text  image/filename
//   image          label                                file_name
// kDataLoss for what is no tf.Example; kNotFound, listing the features there
// are, without a picture or a label; kInvalidArgument where one of these is of
// another kind or has not one value.
Result<ImageRecord> ParseImageRecord(std::string_view bytes);
// A record in the features of TensorFlow's ImageNet scripts, with image/format
// besides; class_name and file only where there are any. kInvalidArgument for a
// picture that begins like neither JPEG nor PNG; kUnimplemented without
// protobuf.
Result<std::string> EncodeImageRecord(const ImageRecord& record);

// The parts of the data that may be in a folder of such records.
inline constexpr std::array<std::string_view, 4> kImageRecordParts = {
    "train", "validation", "val", "test"};

// The shards (ShardsAmong) of a part; empty where there are none. Where there
// are none of "validation", those of "val", else those of "test", are meant.
// Throws Error.
ShardSet FindImageShards(const ListedFolder& folder, ShardKind kind,
                         std::string_view part);
// As FindImageShards, but kNotFound where there are none.
ShardSet ImageShards(const ListedFolder& folder, ShardKind kind,
                     std::string_view part);
std::vector<std::string> ImageRecordShards(const std::string& folder,
                                           std::string_view part);
// Whether there is a shard of any part, even where others are missing.
bool HasImageShards(const ListedFolder& folder, ShardKind kind);

// The names of the classes, by label: the lines of labels.txt or else, as
// TensorFlow Datasets calls it, of label.labels.txt or the only other
// *.labels.txt, but for empty ones at its end. Empty where there is no such
// file. kInvalidArgument where several might be meant or a name is empty.
Result<std::vector<std::string>> ReadClassNames(const std::string& folder);
Result<std::vector<std::string>> ReadClassNames(const ListedFolder& listed);

struct ImageRecords {
  std::shared_ptr<const RecordFiles> files;
  std::vector<std::string> class_names;
};
// Opens a part's records. Throws the errors of ImageRecordShards,
// RecordFiles::Open and ReadClassNames.
ImageRecords OpenImageRecords(const std::string& folder, std::string_view part,
                              int threads = 1);

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_IMAGE_RECORDS_H_
