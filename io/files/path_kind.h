// What there is at a path, and how large it is.
#ifndef SLUICE_IO_FILES_PATH_KIND_H_
#define SLUICE_IO_FILES_PATH_KIND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

enum class PathKind : uint8_t { kNone, kFile, kFolder };

// Of FileSystem::Default(): links are followed, and what is neither file nor
// folder, such as a pipe, counts as a file, whose reader says so. An object
// store has a folder where there are objects in it; where an object has the
// same name, that counts unless it is empty. Errors as the file system says.
Result<PathKind> KindOf(const std::string& path);

// Whether it is a folder. Errors as KindOf.
Result<bool> IsFolder(const std::string& path);

// Bytes of each file, -1 of what is none or may not be read, or whose server
// does not say it. Throws Error for a server that does not answer.
std::vector<int64_t> SizesOf(const std::vector<std::string>& paths);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_PATH_KIND_H_
