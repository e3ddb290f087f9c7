#include "apps/sluice/data/file_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "apps/sluice/data/parallel.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"

namespace sluice::tool {
namespace {

namespace fs = std::filesystem;

bool IsLocal(const std::string& path) {
  return SchemeOf(path).empty();
}

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Whether a link to a folder leads to a folder that it is in: such a tree has
// no end.
bool LeadsBack(const std::string& root, const std::string& relative) {
  const std::string link = PathBelow(root, relative);
  std::error_code none;
  if (!fs::is_symlink(link, none)) return false;
  const fs::path target = fs::canonical(link, none);
  for (size_t end = 0; end != std::string::npos;) {
    const std::string_view above = std::string_view(relative).substr(0, end);
    if (fs::canonical(PathBelow(root, above), none) == target) return true;
    end = relative.find('/', end == 0 ? 0 : end + 1);
  }
  return false;
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string::npos;
}

// What is in a folder, from the root on.
Result<std::vector<std::string>> Inside(const std::string& root,
                                        const std::string& folder,
                                        Faults& faults) {
  const std::string path = PathBelow(root, folder);
  SLUICE_ASSIGN_OR_RETURN(const auto listing,
                          FileSystem::Default().ListAll(path));
  for (const std::string& other : listing.left_out) {
    faults.Add(-1, fmt::format("'{}' is left out: it has an empty name, or "
                               "that of an object beside it",
                               other));
  }
  std::vector<std::string> inside;
  for (const std::string& name : listing.names) {
    if (IsPlainName(name)) {
      inside.push_back(JoinPath(folder, name));
    } else {
      faults.Add(
          -1, fmt::format("'{}': '{}' can be no name of a file", path, name));
    }
  }
  return inside;
}

// All that is in these folders.
std::vector<std::string> Inside(const std::string& root,
                                const std::vector<std::string>& folders,
                                int threads, Faults& faults) {
  const auto n = static_cast<int64_t>(folders.size());
  std::vector<std::vector<std::string>> inside(n);
  ThrowIfError(ForEach(n, threads, [&](int64_t i) -> Status {
    auto names = Inside(root, folders[i], faults);
    if (names.ok()) {
      inside[i] = *std::move(names);
    } else {
      faults.Add(-1, names.status().message());
    }
    return {};
  }));
  std::vector<std::string> all;
  for (std::vector<std::string>& some : inside) {
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

FileTree ListTree(const std::string& root, int threads, Faults& faults) {
  FileTree tree;
  const PathKind kind = KindOf(root).ValueOrThrow();
  if (kind == PathKind::kNone) {
    throw Error(Code::kNotFound, fmt::format("'{}': no such file or folder",
                                             WithoutQuery(root)));
  }
  if (kind == PathKind::kFile) {
    tree.files = {""};
    return tree;
  }
  std::vector<std::string> level = {""};
  while (!level.empty()) {
    const auto inside = Inside(root, level, threads, faults);
    std::move(level.begin(), level.end(), std::back_inserter(tree.folders));
    level.clear();
    const auto n = static_cast<int64_t>(inside.size());
    std::vector<PathKind> kinds(n, PathKind::kNone);
    ThrowIfError(ForEach(n, threads, [&](int64_t i) -> Status {
      const std::string path = PathBelow(root, inside[i]);
      const auto found = KindOf(path);
      if (!found.ok()) {
        faults.Add(-1, found.status().message());
      } else if (*found == PathKind::kFolder && IsLocal(root) &&
                 LeadsBack(root, inside[i])) {
        faults.Add(-1, fmt::format("'{}' is a link that leads back to a folder "
                                   "that it is in",
                                   path));
      } else {
        // A link to nothing is a file that cannot be read.
        kinds[i] = *found == PathKind::kNone ? PathKind::kFile : *found;
      }
      return {};
    }));
    for (int64_t i = 0; i < n; ++i) {
      if (kinds[i] == PathKind::kFile) tree.files.push_back(inside[i]);
      if (kinds[i] == PathKind::kFolder) level.push_back(inside[i]);
    }
  }
  std::sort(tree.files.begin(), tree.files.end());
  std::sort(tree.folders.begin(), tree.folders.end());
  return tree;
}

std::string PathBelow(const std::string& root, std::string_view relative) {
  return relative.empty() ? root : JoinPath(root, relative);
}

std::optional<std::string> PathWithin(const std::string& folder,
                                      const std::string& path) {
  if (IsLocal(path) != IsLocal(folder)) return std::nullopt;
  const auto plain = [](const std::string& p) {
    if (!IsLocal(p)) return WithoutSlashes(p);
    std::error_code none;
    const fs::path whole = fs::weakly_canonical(fs::absolute(p, none), none);
    return WithoutSlashes(whole.empty() ? p : whole.string());
  };
  const std::string inner = plain(path), outer = plain(folder);
  if (inner == outer) return "";
  const std::string below = outer == "/" ? outer : outer + "/";
  if (!inner.starts_with(below)) return std::nullopt;
  return inner.substr(below.size());
}

bool IsInside(const std::string& path, const std::string& folder) {
  return PathWithin(folder, path).has_value();
}

}  // namespace sluice::tool
