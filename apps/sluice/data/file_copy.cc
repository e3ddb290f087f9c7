#include "apps/sluice/data/file_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "apps/sluice/data/temporary_file.h"
#include "io/files/crc32c.h"
#include "io/files/file.h"
#include "io/files/schemes.h"

namespace sluice::tool {
namespace {

constexpr size_t kCopyBytes = 4 << 20;

// Hands the pieces of a file to `take`, in order.
Status ReadPieces(const std::string& path,
                  const std::function<Status(std::string_view)>& take) {
  SLUICE_ASSIGN_OR_RETURN(const auto file,
                          FileSystem::Default().OpenRead(path));
  const uint64_t size = file->size();
  std::string piece(std::min<uint64_t>(size, kCopyBytes), '\0');
  for (uint64_t at = 0; at < size; at += piece.size()) {
    piece.resize(std::min<uint64_t>(size - at, kCopyBytes));
    SLUICE_ASSIGN_OR_RETURN(const size_t got,
                            file->ReadAt(at, piece.data(), piece.size()));
    if (got < piece.size()) {
      return DataLoss(
          fmt::format("'{}' ends after {} of {} bytes: it is being "
                      "changed; try again",
                      path, at + got, size));
    }
    SLUICE_RETURN_IF_ERROR(take(piece));
  }
  return {};
}

Status Compare(const Checksums& wanted, const std::string& written,
               const std::string& to) {
  SLUICE_ASSIGN_OR_RETURN(const Checksums got, ChecksumsOf(written));
  if (got == wanted) return {};
  return DataLoss(
      fmt::format("'{}': what was written reads back as something else: the "
                  "disk or the memory is faulty",
                  to));
}

// Both return the checksums of what was read. Here `to` is created, and whole
// at the end.
Result<Checksums> WritePieces(const std::string& from, const std::string& to,
                              bool sync,
                              const std::function<void(int64_t)>& add) {
  Checksums checksums;
  SLUICE_ASSIGN_OR_RETURN(const auto file, FileSystem::Default().Create(to));
  const auto take = [&](std::string_view piece) -> Status {
    checksums.push_back(Crc32c(piece));
    SLUICE_RETURN_IF_ERROR(file->Append(piece));
    add(static_cast<int64_t>(piece.size()));
    return {};
  };
  SLUICE_RETURN_IF_ERROR(ReadPieces(from, take));
  if (sync) SLUICE_RETURN_IF_ERROR(file->Sync());
  SLUICE_RETURN_IF_ERROR(file->Close());
  return checksums;
}

Result<Checksums> WriteAtOnce(const std::string& from, const std::string& to,
                              const std::function<void(int64_t)>& add) {
  Checksums checksums;
  std::string bytes;
  SLUICE_RETURN_IF_ERROR(
      ReadPieces(from, [&](std::string_view piece) -> Status {
        checksums.push_back(Crc32c(piece));
        bytes += piece;
        return {};
      }));
  SLUICE_RETURN_IF_ERROR(FileSystem::Default().WriteAtomically(to, bytes));
  add(static_cast<int64_t>(bytes.size()));
  return checksums;
}

Status CopyByRename(const std::string& from, const std::string& to, bool check,
                    const std::function<void(int64_t)>& add) {
  const std::string temporary = TemporaryName(to);
  const auto copy = [&]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const Checksums checksums,
                            WritePieces(from, temporary, true, add));
    if (check) SLUICE_RETURN_IF_ERROR(Compare(checksums, temporary, to));
    return FileSystem::Default().Rename(temporary, to);
  };
  Status status = copy();
  // The first error is the one to report.
  if (!status.ok()) (void)FileSystem::Default().Remove(temporary);
  return status;
}

}  // namespace

Result<Checksums> ChecksumsOf(const std::string& path) {
  Checksums checksums;
  SLUICE_RETURN_IF_ERROR(
      ReadPieces(path, [&](std::string_view piece) -> Status {
        checksums.push_back(Crc32c(piece));
        return {};
      }));
  return checksums;
}

Status CopyFile(const std::string& from, const std::string& to, bool check,
                const std::function<void(int64_t)>& add) {
  const std::string_view scheme = SchemeOf(to);
  if (scheme.empty()) return CopyByRename(from, to, check, add);
  // An object appears when its file is closed (io/remote/s3/s3_files.h).
  auto checksums = scheme == "s3" ? WritePieces(from, to, false, add)
                                  : WriteAtOnce(from, to, add);
  if (!checksums.ok()) return checksums.status();
  return check ? Compare(*checksums, to, to) : Status();
}

}  // namespace sluice::tool
