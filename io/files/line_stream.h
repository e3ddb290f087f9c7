// The lines of a text file from the first to the last, also of one that is
// compressed by gzip. Internal to io.
//
//   file := [0xEF 0xBB 0xBF] {line end} [line]    the last line is not empty
//   end  := LF | CR LF
#ifndef SLUICE_IO_FILES_LINE_STREAM_H_
#define SLUICE_IO_FILES_LINE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/status.h"
#include "io/files/byte_stream.h"
#include "io/files/file.h"

namespace sluice {

// The mark that some programs put before UTF-8 text; it is no part of the text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// For ByteStream: text is plain or compressed by gzip; it may begin as zlib's
// streams do.
Compression DetectInText(std::string_view head);

// Holds little more than one line. A line is any bytes: a CR that no LF follows
// is one of them. One thread at a time. After an error only Place may be
// called.
class LineStream {
 public:
  static constexpr size_t kLongest = size_t{64} << 20;

  static Result<std::unique_ptr<LineStream>> Open(
      const std::string& path, FileSystem& files = FileSystem::Default(),
      size_t longest = kLongest);

  // The next line without its end; false where there is none. kDataLoss naming
  // file and line where it has more than `longest` bytes, and of ByteStream.
  Result<bool> Next(std::string* line);
  // Passes over n lines; returns how many there were. Errors as Next.
  Result<int64_t> Skip(int64_t n);
  // Where the last line is, for messages: "'f', line 3", counted from 1.
  std::string Place() const;

 private:
  LineStream(std::string path, std::unique_ptr<ByteStream> bytes,
             size_t longest)
      : path_(std::move(path)), bytes_(std::move(bytes)), longest_(longest) {}

  const std::string path_;  // for messages
  const std::unique_ptr<ByteStream> bytes_;
  const size_t longest_;
  int64_t number_ = 0;  // of the last line
};

}  // namespace sluice

#endif  // SLUICE_IO_FILES_LINE_STREAM_H_
