// Writes and reads PNG images. Internal to the library.
#ifndef SLUICE_IO_IMAGES_PNG_H_
#define SLUICE_IO_IMAGES_PNG_H_

#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// uint8 [height,width,channels], 1 (grey), 3 (RGB) or 4 (RGBA) channels.
// kInvalidArgument for another tensor; kUnimplemented without libpng.
Result<std::string> EncodePng(const Tensor& image);

bool IsPng(std::string_view bytes);
// uint8 [height,width,3]; what is transparent shows its colour. kDataLoss for
// damaged data or more than kMaxPixels (io/images/jpeg.h); kUnimplemented
// without libpng.
Result<Tensor> DecodePng(std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_PNG_H_
