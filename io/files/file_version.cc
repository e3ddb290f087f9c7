#include "io/files/file_version.h"

#include "io/files/file.h"

namespace sluice {

Result<std::string> FileVersion(const std::string& path) {
  return FileSystem::Default().Version(path);
}

}  // namespace sluice
