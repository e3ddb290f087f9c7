// The images of one folder.
#ifndef SLUICE_IO_SOURCES_IMAGE_FOLDER_H_
#define SLUICE_IO_SOURCES_IMAGE_FOLDER_H_

#include <string>
#include <vector>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// The file beside images that says their classes, so that sub-folders do not
// (ListImages).
inline constexpr char kLabelsFile[] = "labels.csv";

// The names of the JPEG and PNG files that are directly in it, sorted; none
// where it is no folder. Throws Error for a folder that cannot be listed, which
// might be a class, unless it is a disk's own "lost+found".
std::vector<std::string> ImagesIn(const std::string& folder);

}  // namespace sluice

#endif  // SLUICE_IO_SOURCES_IMAGE_FOLDER_H_
