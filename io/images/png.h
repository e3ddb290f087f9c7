// Writes and reads PNG images. Internal to the library.
#ifndef SLUICE_IO_IMAGES_PNG_H_
#define SLUICE_IO_IMAGES_PNG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// Whether a picture of so many pixels can be written: 1 to 2^15 on each side.
constexpr bool IsPngSize(int64_t height, int64_t width) {
  constexpr int64_t kMost = 1 << 15;
  return height >= 1 && height <= kMost && width >= 1 && width <= kMost;
}

// Writes uint8 [height,width,channels], 1 (grey), 3 (RGB) or 4 (RGBA) channels.
// kInvalidArgument for another tensor; kUnimplemented without libpng.
Result<std::string> EncodePng(const Tensor& image);

bool IsPng(std::string_view bytes);
// uint8 [height,width,3]; what is transparent shows its colour. Numbers are
// taken as they are, as TensorFlow, OpenCV and Pillow take them: gAMA, sRGB and
// profiles (iCCP) change nothing; of 16 bits the upper 8 are taken, as
// TensorFlow and OpenCV do, and fewer than 8 are spread over 0 to 255.
// kDataLoss for damaged data or more than kMaxPixels (io/images/jpeg.h);
// kUnimplemented without libpng.
Result<Tensor> DecodePng(std::string_view bytes);

// The library that decodes, and its version; empty without one.
std::string PngLibrary();

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_PNG_H_
