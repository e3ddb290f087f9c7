// Reads JPEG images. Internal to io.
#ifndef SLUICE_IO_JPEG_H_
#define SLUICE_IO_JPEG_H_

#include <string_view>

#include "engine/status.h"
#include "engine/tensor.h"

namespace sluice {

bool IsJpeg(std::string_view bytes);

// uint8 [height,width,3], RGB. kDataLoss for damaged or truncated data or more
// than kMaxPixels; kUnimplemented without libjpeg.
Result<Tensor> DecodeJpeg(std::string_view bytes);

// So many that no photograph has more: a small file may claim billions.
inline constexpr int64_t kMaxPixels = 100'000'000;

}  // namespace sluice

#endif  // SLUICE_IO_JPEG_H_
