// Tables of images and their classes. Internal to io.
#ifndef SLUICE_IO_SOURCES_IMAGE_LABELS_H_
#define SLUICE_IO_SOURCES_IMAGE_LABELS_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/sources/image_list.h"

namespace sluice {

// The rows FILE,LABEL of a file of CSV with that text, FILE from its folder on,
// as ListImagesOfTable says, or, where labels may not be names, as ListImages
// does of labels.csv; all but the list's directory. May have none. Throws
// Error.
ImageList ReadImageLabels(const std::string& path, std::string_view text,
                          const std::vector<std::string>& class_names,
                          bool may_be_names);

// The error of an image at `place` whose class has a name that is another one's
// as well, such as ImageNet's "crane".
Error AmbiguousClass(const std::string& place, std::string_view name);

}  // namespace sluice

#endif  // SLUICE_IO_SOURCES_IMAGE_LABELS_H_
