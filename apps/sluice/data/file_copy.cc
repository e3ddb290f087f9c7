#include "apps/sluice/data/file_copy.h"

#include <fmt/format.h>

#include <string_view>

#include "apps/sluice/data/temporary_file.h"
#include "io/files/crc32c.h"
#include "io/files/file.h"
#include "io/files/file_version.h"
#include "io/files/read_pieces.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"

namespace sluice::tool {
namespace {

// Of the file that is at the path now. FileVersion, which asks a store for no
// bytes, knows none of a local file that has just been written.
Result<std::string> VersionAt(const std::string& path) {
  if (!SchemeOf(path).empty()) return FileVersion(path);
  SLUICE_ASSIGN_OR_RETURN(const auto file,
                          FileSystem::Default().OpenRead(path));
  return file->version();
}

// Whether a file that was read, with these checksums, is still the one at its
// path: kDataLoss where it is not, since what was read may be of both. One that
// has grown is let be, as logs do: the next copy sees it by the size. Its times
// change with its links and permissions, too: then its bytes tell.
Status CheckUnchanged(const ReadableFile& file, const std::string& path,
                      const Checksums& read) {
  const std::string version = file.version();
  if (version.empty()) return {};  // it is not known
  SLUICE_ASSIGN_OR_RETURN(const std::string now, VersionAt(path));
  if (now == version) return {};
  SLUICE_ASSIGN_OR_RETURN(const uint64_t size,
                          FileSystem::Default().Size(path));
  if (size > file.size()) return {};
  if (size == file.size()) {
    SLUICE_ASSIGN_OR_RETURN(const Checksums again, ChecksumsOf(path));
    if (again == read) return {};
  }
  return DataLoss(fmt::format("'{}' was changed while it was read; try again",
                              WithoutQuery(path)));
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
  SLUICE_ASSIGN_OR_RETURN(const auto source,
                          FileSystem::Default().OpenRead(from));
  SLUICE_ASSIGN_OR_RETURN(const auto file, FileSystem::Default().Create(to));
  const auto take = [&](std::string_view piece) -> Status {
    checksums.push_back(Crc32c(piece));
    SLUICE_RETURN_IF_ERROR(file->Append(piece));
    add(static_cast<int64_t>(piece.size()));
    return {};
  };
  SLUICE_RETURN_IF_ERROR(ReadPieces(*source, from, take));
  SLUICE_RETURN_IF_ERROR(CheckUnchanged(*source, from, checksums));
  if (sync) SLUICE_RETURN_IF_ERROR(file->Sync());
  SLUICE_RETURN_IF_ERROR(file->Close());
  return checksums;
}

Result<Checksums> WriteAtOnce(const std::string& from, const std::string& to,
                              const std::function<void(int64_t)>& add) {
  Checksums checksums;
  std::string bytes;
  SLUICE_ASSIGN_OR_RETURN(const auto source,
                          FileSystem::Default().OpenRead(from));
  SLUICE_RETURN_IF_ERROR(
      ReadPieces(*source, from, [&](std::string_view piece) -> Status {
        checksums.push_back(Crc32c(piece));
        bytes += piece;
        return {};
      }));
  SLUICE_RETURN_IF_ERROR(CheckUnchanged(*source, from, checksums));
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
  SLUICE_ASSIGN_OR_RETURN(const auto file,
                          FileSystem::Default().OpenRead(path));
  SLUICE_RETURN_IF_ERROR(
      ReadPieces(*file, path, [&](std::string_view piece) -> Status {
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
