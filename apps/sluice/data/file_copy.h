// Copies a file from any file system to any other (io/files/schemes.h).
#ifndef SLUICE_APPS_SLUICE_DATA_FILE_COPY_H_
#define SLUICE_APPS_SLUICE_DATA_FILE_COPY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/status.h"

namespace sluice::tool {

// CRC-32C of a file's pieces of 4 MiB each, the last one shorter.
using Checksums = std::vector<uint32_t>;

// Reads the file. kDataLoss where it ends before its size.
Result<Checksums> ChecksumsOf(const std::string& path);

// Makes `to` a copy of `from`, which replaces what was there: it appears whole
// or not at all, and is on the disk then. `add` is told how many bytes were
// copied, piece by piece. With `check` what was written is read back and
// compared with what was read: kDataLoss. So is a `from` whose bytes become
// others meanwhile: its size and time need not tell afterwards that the copy is
// none of it. A local file has a temporary name until it is whole. No more than
// a piece of it is in memory, and a part of an upload where it becomes an
// object ("s3://"); all of it for any other scheme. Errors name the file; a
// failure leaves no temporary file. The folder must be there; that its new
// entry survives a loss of power is the caller's affair
// (FileSystem::SyncDirectory).
Status CopyFile(const std::string& from, const std::string& to, bool check,
                const std::function<void(int64_t bytes)>& add);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_FILE_COPY_H_
