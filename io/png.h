// Writes PNG images. Internal to io.
#ifndef SLUICE_IO_PNG_H_
#define SLUICE_IO_PNG_H_

#include <string>

#include "engine/status.h"
#include "engine/tensor.h"

namespace sluice {

// uint8 [height,width,channels], 1 (grey), 3 (RGB) or 4 (RGBA) channels.
// kInvalidArgument for another tensor; kUnimplemented without libpng.
Result<std::string> EncodePng(const Tensor& image);

}  // namespace sluice

#endif  // SLUICE_IO_PNG_H_
