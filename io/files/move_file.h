// Moving a file to wherever it is to be.
#ifndef SLUICE_IO_FILES_MOVE_FILE_H_
#define SLUICE_IO_FILES_MOVE_FILE_H_

#include <string>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_INTERNAL sluice {

// Renames a file; replaces `to`. Where that is on another file system, as below
// a link to a folder, the file is copied, and removed once the copy is whole:
// whatever comes between, there is one of them.
Status MoveFile(const std::string& from, const std::string& to,
                FileSystem& files);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_MOVE_FILE_H_
