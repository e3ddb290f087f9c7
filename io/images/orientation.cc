#include "io/images/orientation.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

struct Ways {
  bool swapped, from_bottom, from_right;
};
constexpr Ways kWays[] = {{false, false, false}, {false, false, true},
                          {false, true, true},   {false, true, false},
                          {true, false, false},  {true, true, false},
                          {true, true, true},    {true, false, true}};

}  // namespace

Orientation::Orientation(int exif) {
  const Ways& ways = kWays[exif >= 1 && exif <= 8 ? exif - 1 : 0];
  swapped_ = ways.swapped;
  from_bottom_ = ways.from_bottom;
  from_right_ = ways.from_right;
}

int Orientation::exif() const {
  int exif = 1;
  for (const Ways& ways : kWays) {
    if (ways.swapped == swapped_ && ways.from_bottom == from_bottom_ &&
        ways.from_right == from_right_) {
      return exif;
    }
    ++exif;
  }
  return 1;
}

ImagePart Orientation::Stored(const ImagePart& upright, int64_t height,
                              int64_t width) const {
  ImagePart part = upright;
  if (swapped_) {
    std::swap(part.top, part.left);
    std::swap(part.height, part.width);
  }
  if (from_bottom_) part.top = height - part.top - part.height;
  if (from_right_) part.left = width - part.left - part.width;
  return part;
}

Tensor Orientation::Upright(const Tensor& stored) const {
  if (upright()) return stored;
  const int64_t height = stored.shape()[0], width = stored.shape()[1],
                channels = stored.shape()[2];
  Tensor image(DType::kUInt8, swapped_ ? Shape{width, height, channels}
                                       : Shape{height, width, channels});
  if (image.elements() == 0) return image;
  // In bytes of what is stored: one pixel down, and one to the right, there.
  const int64_t down = (from_bottom_ ? -width : width) * channels;
  const int64_t right = from_right_ ? -channels : channels;
  const int64_t next_row = swapped_ ? right : down;
  const int64_t next_pixel = swapped_ ? down : right;
  const uint8_t* row = stored.data<uint8_t>() +
                       (from_bottom_ ? height - 1 : 0) * width * channels +
                       (from_right_ ? width - 1 : 0) * channels;
  uint8_t* to = image.data<uint8_t>();
  for (int64_t y = image.shape()[0]; y > 0; --y, row += next_row) {
    const uint8_t* pixel = row;
    for (int64_t x = image.shape()[1]; x > 0; --x, pixel += next_pixel) {
      to = std::copy_n(pixel, channels, to);
    }
  }
  return image;
}

}  // namespace sluice
