// The bytes of a record in a file, read from its begin on and summed up on the
// way. Internal to io.
#ifndef SLUICE_IO_CACHE_RECORD_SOURCE_H_
#define SLUICE_IO_CACHE_RECORD_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/cache/example_bytes.h"
#include "io/files/file.h"

namespace sluice {

// A record (io/files/record.h) of `bytes` bytes, its frame counted. Nothing
// that comes from it may be believed before Verify. Reads as few bytes twice as
// there are in front of large tensors: those go into their memory in pieces
// that are still in the processor's cache when they are summed up.
class RecordSource : public ExampleSource {
 public:
  // `buffer` outlives it.
  RecordSource(const ReadableFile& file, uint64_t offset, uint64_t bytes,
               std::string* buffer)
      : file_(file), offset_(offset), bytes_(bytes), buffer_(*buffer) {}

  // kDataLoss unless it begins as a record of so many bytes.
  Status ReadHead();

  // The bytes of the payload that are still to come.
  uint64_t left() const override { return left_; }
  Result<std::string_view> Take(size_t n) override;
  Status Read(void* to, size_t n) override;

  // kDataLoss unless the checksum is that of all the payload, nothing of which
  // is left.
  Status Verify();

 private:
  // The next n bytes of the record, of which the payload's are summed up.
  Status ReadOn(char* to, size_t n);
  // Reads until at least n bytes are in the buffer.
  Status Fill(size_t n);

  const ReadableFile& file_;
  const uint64_t offset_, bytes_;
  uint64_t at_ = 0;    // in the record, behind what has been read
  uint64_t left_ = 0;  // of the payload
  uint32_t crc_ = 0;   // of the payload up to at_
  std::string& buffer_;
  size_t begin_ = 0, end_ = 0;  // of what in the buffer is still to come
};

}  // namespace sluice

#endif  // SLUICE_IO_CACHE_RECORD_SOURCE_H_
