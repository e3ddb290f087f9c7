// Reader of tar archives: POSIX ustar and pax (IEEE Std 1003.1-2017, pax), and
// GNU tar's.
//
//   archive := member* end
//   member  := extra* header data            each padded to blocks of 512 bytes
//   extra   := header data                   of type x or g: pax records,
//                                            L: a long name, K: a link's
//   record  := LENGTH " " KEYWORD "=" VALUE "\n"
//   end     := a block of zeros, twice; or where the file ends
//
//   header, in bytes: name 0..99, size 124..135, checksum 148..155, type 156,
//                     magic 257..262, prefix 345..499 (ustar's alone)
//   numbers: octal text; GNU tar's large ones big-endian behind a byte 0x80
#ifndef SLUICE_IO_RECORDS_TAR_H_
#define SLUICE_IO_RECORDS_TAR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/open_files.h"

namespace SLUICE_INTERNAL sluice {

inline constexpr size_t kTarBlock = 512;

struct TarMember {
  std::string name;     // with its folders
  uint64_t offset = 0;  // of its bytes; its header is the block before them
  uint64_t size = 0;
  uint32_t header = 0;  // the CRC-32C of that block
  bool link = false;  // hard or symbolic: another member or file has the bytes
};

// Walks the regular files and links of an archive, in order; folders and
// devices are passed over. One thread at a time; `file` must outlive it. Memory
// does not depend on what the archive claims.
class TarReader {
 public:
  // `path` is for messages.
  TarReader(std::string path, const ReadableFile& file)
      : path_(std::move(path)), size_(file.size()), window_(file) {}

  // Finds the next member, or returns false at the end, after which it may not
  // be called. Errors name the archive and the byte: kDataLoss (no header, or
  // one whose checksum is wrong; the file is empty or the archive ends within a
  // file; another archive begins right behind it, or the file goes on for more
  // than the 1 MiB that archives are padded by), kUnimplemented (it is
  // compressed; a sparse file).
  Result<bool> Next(TarMember* member);

 private:
  struct Header;
  // The fields that extra headers set for a member, or for all that follow.
  struct Extra {
    std::optional<std::string> name;
    std::optional<uint64_t> size;
    bool sparse = false;
  };

  // Reads the header at `position_`; false at the end of the archive.
  Result<bool> ReadHeader(Header* header);
  Status CheckEnd();
  // Moves behind the header at `position_` and its data; returns where the data
  // begin.
  Result<uint64_t> PassOver(std::string_view name, uint64_t size);
  // Takes an extra header; returns whether the header is one.
  Result<bool> TakeExtra(const Header& header);
  static Status ParsePax(std::string_view records, Extra* extra);
  Result<bool> NextMember(TarMember* member);

  std::string path_;
  uint64_t size_;
  ForwardWindow window_;
  uint64_t position_ = 0;  // of the next header
  uint64_t at_ = 0;        // of what is looked at, for messages
  Extra next_, all_;
  bool begun_ = false;  // a member whose own header is still to come
};

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_TAR_H_
