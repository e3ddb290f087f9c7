#include "io/files/path_kind.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "io/files/file.h"
#include "io/files/open_files.h"
#include "io/files/schemes.h"

namespace sluice {

namespace fs = std::filesystem;

Result<PathKind> KindOf(const std::string& path) {
  if (SchemeOf(path).empty()) {
    std::error_code none;
    const fs::file_type type = fs::status(path, none).type();
    if (type == fs::file_type::not_found) return PathKind::kNone;
    return type == fs::file_type::directory ? PathKind::kFolder
                                            : PathKind::kFile;
  }
  const auto size = FileSystem::Default().Size(path);
  if (size.ok() && *size > 0) return PathKind::kFile;
  const Code missing = size.status().code();
  // A bucket itself is no object's path.
  if (!size.ok() && missing != Code::kNotFound &&
      missing != Code::kInvalidArgument) {
    return size.status();
  }
  // Some programs put an empty object where there is a folder.
  const auto inside = FileSystem::Default().ListAll(path);
  bool holds = false;
  if (inside.ok()) {
    holds = !inside->names.empty() || !inside->left_out.empty();
  } else if (inside.status().code() != Code::kNotFound &&
             inside.status().code() != Code::kUnimplemented) {
    return inside.status();  // but for a web server, which lists nothing
  }
  if (holds) return PathKind::kFolder;
  return size.ok() ? PathKind::kFile : PathKind::kNone;
}

Result<bool> IsFolder(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const PathKind kind, KindOf(path));
  return kind == PathKind::kFolder;
}

std::vector<int64_t> SizesOf(const std::vector<std::string>& paths) {
  constexpr int kRequests = 32;  // at a time, of a server that is far away
  const bool local =
      std::all_of(paths.begin(), paths.end(),
                  [](const auto& path) { return SchemeOf(path).empty(); });
  std::vector<int64_t> sizes(paths.size(), -1);
  ThrowIfError(
      ForEachFile(paths.size(), local ? 1 : kRequests, [&](size_t i) -> Status {
        if (SchemeOf(paths[i]).empty()) {
          std::error_code none;
          const auto size = fs::file_size(paths[i], none);
          if (!none) sizes[i] = static_cast<int64_t>(size);
          return {};
        }
        const auto size = FileSystem::Default().Size(paths[i]);
        if (size.ok()) sizes[i] = static_cast<int64_t>(*size);
        // Of a server that does not answer nothing is known.
        return size.status().code() == Code::kUnavailable ? size.status()
                                                          : Status();
      }));
  return sizes;
}

}  // namespace sluice
