#include "io/sources/image_folder.h"

#include "engine/status.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/images/image.h"

namespace sluice {

std::vector<std::string> ImagesIn(const std::string& folder) {
  auto names = FileSystem::Default().List(folder);
  if (!names.ok()) {
    if (folder.ends_with("/lost+found") || !IsFolder(folder).ValueOrThrow()) {
      return {};
    }
    throw Error(names.status());
  }
  std::erase_if(*names,
                [](const std::string& name) { return !IsImageName(name); });
  return *std::move(names);
}

}  // namespace sluice
