// Names of files as shells have them: * ? [...].
#ifndef SLUICE_IO_FILES_FILE_PATTERN_H_
#define SLUICE_IO_FILES_FILE_PATTERN_H_

#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_INTERNAL sluice {

// Whether the last name of the path is a pattern; false where there is a file
// or a folder of that very name.
bool IsFilePattern(const std::string& path);

// The names in its folder that fit the path's pattern, sorted; hidden ones only
// where the pattern begins with a dot, too. kNotFound where none does, naming
// the pattern.
Result<std::vector<std::string>> NamesByPattern(
    const std::string& path, FileSystem& files = FileSystem::Default());

}  // namespace sluice

#endif  // SLUICE_IO_FILES_FILE_PATTERN_H_
