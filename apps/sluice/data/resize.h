// Resizes a picture as `sluice data make --resize` does.
#ifndef SLUICE_APPS_SLUICE_DATA_RESIZE_H_
#define SLUICE_APPS_SLUICE_DATA_RESIZE_H_

#include <cstdint>
#include <string>

#include "engine/status.h"

namespace sluice::tool {

// A JPEG or PNG file whose shorter side has more than `side` pixels becomes a
// JPEG file of quality 95 whose shorter side has just so many, the longer one
// side * longer / shorter, rounded down, in the pixels of Resize; any other
// picture stays the same bytes. Of what else is in such a file Exif's
// Orientation stays; notes, colour profiles and other data go. Errors as
// DecodeImage's, and EncodeJpeg's where the longer side is too long for it;
// `path` is for messages.
Result<std::string> MakeSmaller(std::string picture, int64_t side,
                                const std::string& path);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_RESIZE_H_
