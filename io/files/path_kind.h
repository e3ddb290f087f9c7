// Whether there is a file or a folder at a path, and the sizes of files.
#ifndef SLUICE_IO_FILES_PATH_KIND_H_
#define SLUICE_IO_FILES_PATH_KIND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

enum class PathKind : uint8_t { kNone, kFile, kFolder };

// The kind of a path of FileSystem::Default(). Links are followed, and a path
// that is neither file nor folder, such as a pipe, counts as a file, whose
// reader returns the error. An object store has a folder where there are
// objects in it; where an object has the same name, that counts unless it is
// empty. Errors of the file system.
Result<PathKind> KindOf(const std::string& path);

// Whether the path is a folder. Errors as KindOf.
Result<bool> IsFolder(const std::string& path);

// The size of each file in bytes; -1 for a path that is no file or may not be
// read, or whose server does not tell it. Throws Error for a server that does
// not answer.
std::vector<int64_t> SizesOf(const std::vector<std::string>& paths);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_PATH_KIND_H_
