// The files of what one DiskCache has added. Internal to io.
//
// A segment is two files of records (io/files/record.h), which are only ever
// appended to:
//
//   examples := record(number example)*     io/cache/example_bytes.h
//   index    := record(format key) record(number offset bytes)*
//
// An entry of the index is appended when its example's record has been; all
// have the same size, so that a damaged one hides no other. Numbers are 64 bits
// in the machine's byte order.
#ifndef SLUICE_IO_CACHE_CACHE_SEGMENT_H_
#define SLUICE_IO_CACHE_CACHE_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/example.h"
#include "io/files/file.h"
#include "io/files/record.h"

namespace sluice {

struct IndexEntry {
  int64_t number;
  uint64_t offset, bytes;  // of the record in the examples
};
inline constexpr size_t kEntryBytes = sizeof(IndexEntry) + kRecordFrameBytes;

// The path of a segment's examples; `segment` is its path, without a suffix.
std::string ExamplesPath(const std::string& segment);
std::string IndexPath(const std::string& segment);

// The bytes that an index of the key begins with.
std::string IndexHead(std::string_view key);

std::string RecordOf(int64_t number, const Example& example);
// The example of a record that should be the number's; nothing where it is not.
// Throws Error when memory runs out.
std::optional<Example> ExampleOf(int64_t number, std::string_view record);
// ExampleOf a record of `bytes` bytes in a file, whose large tensors are read
// into their own memory. `buffer` is for the rest, and worth keeping: new
// memory costs as much as reading.
std::optional<Example> ReadExample(int64_t number, const ReadableFile& examples,
                                   uint64_t offset, uint64_t bytes,
                                   std::string* buffer);

// Reads where examples are from one index; reads on as the index grows.
class IndexReader {
 public:
  // The entries that came since, whose records are in the file of examples.
  std::vector<IndexEntry> ReadOn(const std::string& segment,
                                 std::string_view head, FileSystem& files);
  // Whether the index was there once, and the key's.
  bool is_ours() const { return position_ > 0; }

 private:
  bool CheckHead(const ReadableFile& index, std::string_view head);
  void ReadEntries(const ReadableFile& index, std::vector<IndexEntry>* entries);

  uint64_t position_ = 0;  // behind the last whole entry; 0: before the head
};

// Adds to a segment of its own. One thread at a time.
class SegmentWriter {
 public:
  SegmentWriter(std::string segment, std::string head, FileSystem& files)
      : segment_(std::move(segment)), head_(std::move(head)), files_(files) {}

  // The bytes of the two files once a record of so many bytes has been added.
  uint64_t BytesWith(uint64_t record_bytes) const {
    return written_ + (index_ == nullptr ? head_.size() : 0) + record_bytes +
           kEntryBytes;
  }
  // The bytes of the two files.
  uint64_t bytes() const { return written_; }
  // Makes the files at the first call. After an error none may follow: what
  // came behind a torn record would not be where the index says.
  Result<IndexEntry> Append(int64_t number, const std::string& record);
  // The file to read what was added from; null before anything was.
  std::shared_ptr<const ReadableFile> examples() const { return readable_; }

 private:
  Status Create();

  const std::string segment_;
  const std::string head_;
  FileSystem& files_;
  std::unique_ptr<WritableFile> examples_, index_;
  std::shared_ptr<const ReadableFile> readable_;
  uint64_t offset_ = 0;   // behind the last example
  uint64_t written_ = 0;  // bytes of both files
};

}  // namespace sluice

#endif  // SLUICE_IO_CACHE_CACHE_SEGMENT_H_
