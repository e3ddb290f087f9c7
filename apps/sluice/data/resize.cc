#include "apps/sluice/data/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/tensor.h"
#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/orientation.h"

namespace sluice::tool {
namespace {

// Hardly to be told from the original.
constexpr int kQuality = 95;

}  // namespace

Result<std::string> MakeSmaller(std::string picture, int64_t side,
                                const std::string& path) {
  if (IsJpeg(picture)) {
    const auto size = ReadJpegSize(picture);
    // What is damaged has its file named below.
    if (size.ok() && std::min(size->height, size->width) <= side) {
      return picture;
    }
  }
  SLUICE_ASSIGN_OR_RETURN(const Tensor image, DecodeImage(picture, path));
  const int64_t height = image.shape()[0], width = image.shape()[1];
  const int64_t shorter = std::min(height, width);
  if (shorter <= side) return picture;
  auto smaller =
      EncodeJpeg(Resize(image, side * height / shorter, side * width / shorter),
                 kQuality, ReadOrientation(picture).exif());
  if (smaller.ok()) return smaller;
  return smaller.status().WithContext(fmt::format("'{}'", path));
}

}  // namespace sluice::tool
