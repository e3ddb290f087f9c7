// Reads JPEG images, whole or in part. Internal to io.
#ifndef SLUICE_IO_IMAGES_JPEG_H_
#define SLUICE_IO_IMAGES_JPEG_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "engine/status.h"
#include "engine/tensor.h"
#include "io/images/image.h"

namespace sluice {

bool IsJpeg(std::string_view bytes);

// So many that no photograph has more: a small file may claim billions.
inline constexpr int64_t kMaxPixels = 100'000'000;

// For all functions below: kDataLoss for damaged or truncated data or more than
// kMaxPixels; kUnimplemented without libjpeg.

// uint8 [height,width,3], RGB.
Result<Tensor> DecodeJpeg(std::string_view bytes);

struct JpegSize {
  int64_t height = 0, width = 0;
};
// From the header alone.
Result<JpegSize> ReadJpegSize(std::string_view bytes);

// Calls `take` with the rows of `part` from top to bottom, part.width RGB
// pixels each, the same bytes as DecodeJpeg's. `part` must lie inside the image
// and not be empty. Of what is outside, no more is decoded than need be, so
// damage there may go unseen, but not that the file was cut off. After an
// error, what was taken is worthless.
Status DecodeJpegRows(std::string_view bytes, const ImagePart& part,
                      const std::function<void(const uint8_t* row)>& take);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_JPEG_H_
