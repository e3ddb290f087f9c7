// The bytes of a file from the first to the last, decompressed on the way.
// Internal to io.
#ifndef SLUICE_IO_FILES_BYTE_STREAM_H_
#define SLUICE_IO_FILES_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/files/file.h"
#include "io/files/gzip.h"

namespace sluice {

// Holds at most 256 KiB of the file and as much of what it decompresses to. One
// thread at a time. Errors name the file and the byte of it: kDataLoss where
// compressed data are corrupt or stop early, or where the file has fewer bytes
// than when it was opened. After an error only Place may be called.
class ByteStream {
 public:
  // Tells how a file is compressed by its first bytes: 4 KiB, or all it has.
  using Detect = Compression (*)(std::string_view head);
  static Result<std::unique_ptr<ByteStream>> Open(const std::string& path,
                                                  Detect detect,
                                                  FileSystem& files);
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Returns some of the bytes that follow, none only at the end; valid until
  // the next call other than Take.
  Result<std::string_view> Peek();
  // Goes on by n of the bytes that Peek gave.
  void Take(size_t n);
  // Adds the next n bytes to `out`, unless that is null; returns how many there
  // were, fewer only at the end. Memory is taken as they come, not for n.
  Result<uint64_t> Append(uint64_t n, std::string* out);
  // Passes over n bytes; returns how many there were. In a file that is not
  // compressed they are not read.
  Result<uint64_t> Skip(uint64_t n);

  // Bytes given out and passed over.
  uint64_t position() const { return position_; }
  // A position, for messages: "'a', byte 12", or "'a.gz', decompressed byte
  // 12".
  std::string Place(uint64_t position) const;

 private:
  ByteStream(const std::string& path, std::unique_ptr<ReadableFile> file);
  Status ReadPiece();
  Status Decompress();
  Status WithPlace(const Status& error) const;

  const std::string path_;  // for messages
  const std::unique_ptr<ReadableFile> file_;
  std::optional<Inflater> inflater_;  // none where the file is not compressed
  std::string piece_;                 // of the file
  uint64_t piece_end_ = 0;            // in the file
  size_t next_piece_;                 // bytes to read
  std::string_view compressed_;       // what of the piece is not used yet
  std::string decompressed_;
  std::string_view ready_;  // what of `piece_`, or `decompressed_`, follows
  uint64_t position_ = 0;   // of `ready_`
};

}  // namespace sluice

#endif  // SLUICE_IO_FILES_BYTE_STREAM_H_
