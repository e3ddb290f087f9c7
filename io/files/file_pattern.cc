#include "io/files/file_pattern.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include "io/files/path_kind.h"

namespace sluice {
namespace {

std::string LastName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

bool IsFilePattern(const std::string& path) {
  if (LastName(path).find_first_of("*?[") == std::string::npos) return false;
  const auto kind = KindOf(path);
  return !kind.ok() || *kind == PathKind::kNone;
}

Result<std::vector<std::string>> NamesByPattern(const std::string& path,
                                                FileSystem& files) {
  const std::string folder = ParentDirectory(path), pattern = LastName(path);
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(folder));
  std::erase_if(names, [&](const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) != 0;
  });
  if (!names.empty()) return names;
  return NotFound(fmt::format("no file in '{}' fits '{}'", folder, pattern));
}

}  // namespace sluice
