// File versions, by which to tell whether a file is still the one that it was.
#ifndef SLUICE_IO_FILES_FILE_VERSION_H_
#define SLUICE_IO_FILES_FILE_VERSION_H_

#include <string>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// A few words that are others once the content of the file at the path has
// changed: its size, its number (inode), and the times of the last modification
// and of the last change of any kind, of which nobody can set the latter back.
// A file that was written less than 20 ms ago, within which a time may stay the
// same, has none yet: kFailedPrecondition. kNotFound, kUnavailable. For a path
// with a scheme (io/files/schemes.h) its file system's Version: an object's is
// its size and ETag, and asks the server; kUnimplemented where there is none.
Result<std::string> FileVersion(const std::string& path);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_FILE_VERSION_H_
