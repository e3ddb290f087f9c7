// Finds which way up a picture was stored, and puts it upright. Internal to the
// library.
#ifndef SLUICE_IO_IMAGES_ORIENTATION_H_
#define SLUICE_IO_IMAGES_ORIENTATION_H_

#include <cstdint>
#include <string_view>

#include "engine/tensor.h"
#include "engine/visibility.h"
#include "io/images/image.h"

namespace SLUICE_INTERNAL sluice {

// Exif's Orientation: 1, upright, to 8. In the words of its standard (JEITA
// CP-3451), where the stored first row and first column are to be seen:
//   1 top, left       2 top, right     3 bottom, right   4 bottom, left
//   5 left, top       6 right, top     7 right, bottom   8 left, bottom
class Orientation {
 public:
  // 1 where `exif` is none of them.
  explicit Orientation(int exif = 1);
  int exif() const;

  // Whether the stored picture is upright already.
  bool upright() const { return !swapped_ && !from_bottom_ && !from_right_; }
  // Whether the upright picture is as wide as the stored one is high.
  bool swaps_sides() const { return swapped_; }

  // Where a part of the upright picture lies in the stored one, which has
  // `height` rows and `width` columns.
  ImagePart Stored(const ImagePart& upright, int64_t height,
                   int64_t width) const;
  // Puts a stored picture, uint8 [height,width,channels], or a part of one,
  // upright.
  Tensor Upright(const Tensor& stored) const;

 private:
  // Upright pixel (y, x) is the stored one at row y and column x, or at row x
  // and column y if swapped_, counted from the bottom, and from the right.
  bool swapped_, from_bottom_, from_right_;
};

// Reads it from the Exif data of a JPEG (its first APP1 segment of these,
// before the picture) or a PNG (its eXIf chunk). Upright where there are none,
// where they are damaged, and for any other bytes.
Orientation ReadOrientation(std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_ORIENTATION_H_
