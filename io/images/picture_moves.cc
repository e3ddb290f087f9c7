// What moves pixels (io/images/picture_ops.h).
#include <cmath>
#include <cstring>
#include <numbers>

#include "io/images/image.h"
#include "io/images/picture_ops.h"

namespace sluice {
namespace {

// New pixel (x, y) is the old one at (xx * x + xy * y + x0, yx * x + yy * y +
// y0), of positions that are whole at pixels' corners.
struct Affine {
  double xx, xy, x0, yx, yy, y0;
};

int64_t Fixed(double pixels) {
  return static_cast<int64_t>(std::floor(pixels * 65536 + 0.5));
}

Tensor Transformed(const Tensor& image, const Affine& affine) {
  const int64_t rows = image.shape()[0], columns = image.shape()[1];
  Tensor transformed(DType::kUInt8, image.shape());
  const uint8_t* from = image.data<uint8_t>();
  uint8_t* to = transformed.data<uint8_t>();
  const int64_t xx = Fixed(affine.xx), xy = Fixed(affine.xy);
  const int64_t yx = Fixed(affine.yx), yy = Fixed(affine.yy);
  // Of the first pixel's centre.
  const int64_t x0 = Fixed(affine.x0 + affine.xx * 0.5 + affine.xy * 0.5);
  const int64_t y0 = Fixed(affine.y0 + affine.yx * 0.5 + affine.yy * 0.5);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t x = x0 + row * xy, y = y0 + row * yy;
    for (int64_t column = 0; column < columns; ++column, to += 3) {
      const int64_t i = x >> 16, j = y >> 16;
      if (i < 0 || i >= columns || j < 0 || j >= rows) {
        to[0] = to[1] = to[2] = 0;
      } else {
        std::memcpy(to, from + (j * columns + i) * 3, 3);
      }
      x += xx;
      y += yx;
    }
  }
  return transformed;
}

}  // namespace

Tensor ShearX(const Tensor& image, double slope) {
  return Transformed(image, {1, slope, 0, 0, 1, 0});
}

Tensor ShearY(const Tensor& image, double slope) {
  return Transformed(image, {1, 0, 0, slope, 1, 0});
}

Tensor Translate(const Tensor& image, int64_t right, int64_t down) {
  return Crop(image, -down, -right, image.shape()[0], image.shape()[1]);
}

Tensor Rotate(const Tensor& image, double degrees) {
  const double radians = degrees * (std::numbers::pi / 180);
  const double sine = std::sin(radians);
  const double cosine = std::cos(radians);
  const double x = static_cast<double>(image.shape()[1]) / 2;
  const double y = static_cast<double>(image.shape()[0]) / 2;
  return Transformed(image, {cosine, -sine, cosine * -x + -sine * -y + x,  //
                             sine, cosine, sine * -x + cosine * -y + y});
}

}  // namespace sluice
