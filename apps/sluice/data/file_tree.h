// Lists a folder and the folders in it, of any file system.
#ifndef SLUICE_APPS_SLUICE_DATA_FILE_TREE_H_
#define SLUICE_APPS_SLUICE_DATA_FILE_TREE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/sluice/data/faults.h"
#include "engine/status.h"

namespace sluice::tool {

struct FileTree {
  // Paths from the root on, sorted; "" is the root itself, which is the only
  // one where it is a file.
  std::vector<std::string> files, folders;
};

// Lists a file or a folder, on `threads` threads; links to folders are
// followed. What is in it and cannot be listed is a fault: a folder that cannot
// be read, a link that leads back to a folder that it is in, a name that no
// folder has room for ("", ".", ".." or one with a slash, of an object), a
// folder of an object store that has the name of an object, too.
// Throws Error, kNotFound, where there is no such root.
FileTree ListTree(const std::string& root, int threads, Faults& faults);

// The path of a file of the tree.
std::string PathBelow(const std::string& root, std::string_view relative);

// The path from the folder on of what is in it, whether they are there or not:
// empty for the folder itself, nothing for what is elsewhere.
std::optional<std::string> PathWithin(const std::string& folder,
                                      const std::string& path);
// Whether a path is the folder or in it.
bool IsInside(const std::string& path, const std::string& folder);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_FILE_TREE_H_
