// Reads JPEG images, whole or in part, and writes them. Internal to the
// library.
#ifndef SLUICE_IO_IMAGES_JPEG_H_
#define SLUICE_IO_IMAGES_JPEG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "io/images/image.h"

namespace SLUICE_INTERNAL sluice {

bool IsJpeg(std::string_view bytes);

// The most pixels of an image, more than any photograph has: a small file may
// claim billions.
inline constexpr int64_t kMaxPixels = 100'000'000;

// Errors of all functions below: kDataLoss for damaged or truncated data, more
// than kMaxPixels or, but of ReadJpegSize, more than 100 scans; kUnimplemented
// without libjpeg.

// uint8 [height,width,3], RGB. Four inks (CMYK, YCCK) are taken to be stored
// inverted, as Adobe's programs do, also where the file has no marker of
// Adobe's: so do Pillow, torchvision, OpenCV and libjpeg-turbo's programs.
// (TensorFlow takes those without it to be upright.)
Result<Tensor> DecodeJpeg(std::string_view bytes);

struct JpegSize {
  int64_t height = 0, width = 0;
};
// The size of an image, from the header alone.
Result<JpegSize> ReadJpegSize(std::string_view bytes);

// Calls `take` with the rows of `part` from top to bottom, part.width RGB
// pixels each, the same bytes as DecodeJpeg's. `part` must lie inside the image
// and not be empty. Of what is outside, no more is decoded than need be, so
// damage there may go unseen, but not that the file was cut off. After an
// error, what was taken is worthless.
Status DecodeJpegRows(std::string_view bytes, const ImagePart& part,
                      const std::function<void(const uint8_t* row)>& take);
// The rows of DecodeJpegRows as an image, uint8 [part.height,part.width,3].
Result<Tensor> DecodeJpegPart(std::string_view bytes, const ImagePart& part);

// A baseline JFIF file of uint8 [height,width,3], RGB: quality 1 to 100 in
// libjpeg's scale, colours at half the resolution (4:2:0), which are Pillow's
// and cjpeg's defaults. An orientation of 2 to 8 (io/images/orientation.h)
// goes with the pixels as Exif data of that alone. kInvalidArgument for another
// tensor or quality, or more than 65,500 pixels a side; kUnimplemented without
// libjpeg.
Result<std::string> EncodeJpeg(const Tensor& image, int quality,
                               int orientation = 1);

// The library that decodes, and the version of it that this was compiled with;
// empty without one.
std::string JpegLibrary();

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_JPEG_H_
