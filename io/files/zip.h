// Reader of zip archives (PKWARE's APPNOTE.TXT 6.3.10) whose entries are
// stored, not compressed, such as torch.save writes.
//
//   archive   := (local data descriptor?)* directory zip64? end
//   local     := "PK\3\4" ... name extra      its sizes may be left to the
//                                             directory
//   directory := ("PK\1\2" ... name extra comment)*, one per entry
//   zip64     := record "PK\6\6", locator "PK\6\7": numbers of 64 bits for
//   those
//                that are all ones in `end`; an entry has its own in `extra`
//   end       := "PK\5\6" ... comment         the archive's last bytes
#ifndef SLUICE_IO_FILES_ZIP_H_
#define SLUICE_IO_FILES_ZIP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "engine/status.h"

namespace sluice {

// Does this start like a zip archive that has an entry?
bool IsZip(std::string_view bytes);

struct ZipEntry {
  std::string_view name;
  std::string_view data;  // as it lies in the archive
  uint32_t crc = 0;       // of what it stands for
  uint16_t method = 0;    // 0: stored
  bool encrypted = false;
};

// Views of the archive's bytes, which must outlive it. Thread-safe.
class ZipArchive {
 public:
  // kDataLoss where directory and entries do not agree: entries lie within the
  // bytes, none in another, each under its own name, no name twice.
  // kUnimplemented for archives of several disks.
  static Result<ZipArchive> Open(std::string_view bytes);

  // The entries, in the order of the directory.
  std::span<const ZipEntry> entries() const { return entries_; }
  bool Contains(std::string_view name) const { return index_.contains(name); }
  // The bytes of an entry; reads them all, for their checksum. kDataLoss where
  // it is wrong or there is no such entry, kUnimplemented for a compressed or
  // encrypted one.
  Result<std::string_view> Read(std::string_view name) const;

 private:
  std::vector<ZipEntry> entries_;
  std::map<std::string_view, size_t> index_;  // into entries_
};

}  // namespace sluice

#endif  // SLUICE_IO_FILES_ZIP_H_
