// The records of a TFRecord file (io/files/record.h) from the first to the
// last, also of one that is compressed. Internal to io.
#ifndef SLUICE_IO_RECORDS_RECORD_STREAM_H_
#define SLUICE_IO_RECORDS_RECORD_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/status.h"
#include "io/files/byte_stream.h"
#include "io/files/file.h"

namespace sluice {

// Holds little more than the record that is read. One thread at a time. Errors
// name the file and the byte, of a compressed file the decompressed byte unless
// it cannot be decompressed: kDataLoss where a checksum is wrong or the file
// ends within a record. Behind a record whose payload's checksum is wrong one
// may go on; any other error comes again with every call.
class RecordFileStream {
 public:
  // The file may be compressed by gzip, in several members too, or zlib; its
  // first bytes tell, not its name.
  static Result<std::unique_ptr<RecordFileStream>> Open(
      const std::string& path, FileSystem& files = FileSystem::Default());

  // False at the end.
  Result<bool> Next(std::string* payload);
  // Passes over n records; returns how many there were. Payloads are not looked
  // at, and not read where the file is not compressed.
  Result<int64_t> Skip(int64_t n);
  // Where the last record is, for messages: "'f', byte 12".
  std::string Place() const { return bytes_->Place(begin_); }

 private:
  explicit RecordFileStream(std::unique_ptr<ByteStream> bytes)
      : bytes_(std::move(bytes)) {}
  Result<bool> Pass(bool keep, std::string* frame);
  Result<bool> PassUnlessBroken(bool keep, std::string* frame);

  const std::unique_ptr<ByteStream> bytes_;
  uint64_t begin_ = 0;  // of the last record
  Status broken_;       // what no record can be found behind
};

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_RECORD_STREAM_H_
