// Pictures to be looked at, of numbers in any range. Internal to the library.
#ifndef SLUICE_IO_IMAGES_STRETCH_H_
#define SLUICE_IO_IMAGES_STRETCH_H_

#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// uint8 of a float32 image. Standardised pixels have any range: the least
// finite one becomes 0, the greatest 255. NaN becomes 0, and so does a picture
// of one value.
Tensor Stretched(const Tensor& image);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_STRETCH_H_
