// The records of many TFRecord files (io/files/record.h), in any order.
#ifndef SLUICE_IO_RECORDS_RECORD_FILES_H_
#define SLUICE_IO_RECORDS_RECORD_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/file.h"
#include "io/pipeline/dataset.h"

namespace SLUICE_PUBLIC sluice {

// Thread-safe. Keeps 8 bytes a record in memory and, besides those being read,
// at most 64 files open.
class RecordFiles {
 public:
  // Learns where the records are. Of a file F that says F.idx, where it is
  // there: text, a line "OFFSET SIZE" for each record's frame, in bytes, as
  // NVIDIA DALI's tfrecord2idx writes. Else, and where F is a web address with
  // a query, F is walked from length to length, on `threads` threads, a file
  // each; payloads are not looked at.
  // Errors name the file and the byte: kNotFound, kDataLoss (F.idx does not fit
  // F, so that records may be missing; a length's checksum is wrong; the file
  // ends within a record), kUnimplemented (it is compressed). Of several files'
  // errors the first file's is returned.
  static Result<std::shared_ptr<const RecordFiles>> Open(
      std::vector<std::string> paths, int threads = 1,
      FileSystem& files = FileSystem::Default());
  ~RecordFiles();

  // The number of records of all files.
  int64_t size() const;
  // The payload of a record, 0 to size() - 1 in the order of the files, its
  // checksums verified: kDataLoss naming file and byte; kUnavailable where the
  // file is gone or has another size.
  Result<std::string> Read(int64_t record) const;
  // The number of records of the file with that number.
  int64_t CountOf(size_t file) const;
  // The version of that file when it was opened (ReadableFile::version).
  const std::string& VersionOf(size_t file) const;
  // Where a record is, for messages: "'dir/train-00003-of-00010', byte 1234".
  std::string PlaceOf(int64_t record) const;
  // Tells sets of records apart: a checksum of the files' names without their
  // folders, their sizes, where their records begin and the checksums of up to
  // 16 records of each, which it reads. Errors as Read.
  Result<std::string> Identity() const;

 private:
  struct State;
  explicit RecordFiles(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The text of F.idx for a file of records, for `sluice data make`.
std::string RecordIndexText(const std::vector<uint64_t>& offsets,
                            uint64_t file_size);

// Which files of a folder hold a part of the data, such as "train": those named
//   [PREFIX-]PART[.tfrecord]-NNNNN-of-MMMMM[.tfrecord]
// sorted by NNNNN; hidden ones, which begin with a dot, are none of them. Empty
// where there are none. Throws Error: kNotFound naming the first shards that
// are missing of MMMMM and how many are there, kInvalidArgument where two sets
// of shards have that name.
std::vector<std::string> FindShards(const std::string& folder,
                                    std::string_view part,
                                    FileSystem& files = FileSystem::Default());

enum class ShardKind : uint8_t { kRecords, kTars };

// The names of the files of a folder, so that it need be listed only once.
struct ListedFolder {
  std::string path;
  std::vector<std::string> names;
  bool may_lack_shards = false;
};
// Lists a folder; or those files of a folder that fit a pattern
// (io/files/file_pattern.h), which may lack shards. kNotFound where none fits.
Result<ListedFolder> ListFolder(const std::string& folder_or_pattern,
                                FileSystem& files = FileSystem::Default());

struct ShardSet {
  std::vector<std::string> paths;  // sorted by their numbers
  int64_t count = 0;               // of these and of those that are missing
};

// FindShards among the listed files, or, for tar files, those named
//   [PREFIX-]PART-N.tar  or  [PREFIX-]PART-N-of-M.tar
// sorted by N, from 0; one below the highest N may be missing, too. Shards that
// are missing are an error unless the folder may lack them.
ShardSet ShardsAmong(const ListedFolder& folder, ShardKind kind,
                     std::string_view part);

namespace datasets {

// The numbers of all records, "record" (int64 []), in order; for a Dataset::Map
// that reads each record, which may run on many threads. Positions can only be
// restored with the same records and the same `meaning`, which names whatever
// else decides which examples they become. Throws Error where the records
// cannot be read.
Dataset RecordNumbers(const RecordFiles& records,
                      const std::string& meaning = "");
// The numbers of `count` items of any kind, which `identity` tells apart.
Dataset RecordNumbers(int64_t count, const std::string& identity);

}  // namespace datasets
}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_RECORD_FILES_H_
