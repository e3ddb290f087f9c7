// Files that are read from the first byte to the last without being in memory.
#ifndef SLUICE_IO_FILES_READ_PIECES_H_
#define SLUICE_IO_FILES_READ_PIECES_H_

#include <functional>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_INTERNAL sluice {

// Hands the pieces of a file to `take`, in order: 4 MiB each, but for the last.
// kDataLoss where it has become shorter meanwhile; `path` is for messages.
Status ReadPieces(const ReadableFile& file, const std::string& path,
                  const std::function<Status(std::string_view piece)>& take);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_READ_PIECES_H_
