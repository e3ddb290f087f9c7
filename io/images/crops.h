// Which pixels the crops of io/images/image.h are made of, for what decodes no
// more than these. Internal to io.
#ifndef SLUICE_IO_IMAGES_CROPS_H_
#define SLUICE_IO_IMAGES_CROPS_H_

#include <cstdint>

#include "engine/tensor.h"
#include "io/images/resample.h"

namespace sluice {

// The functions below are for an image of rows x columns pixels.

// All of ResizeAndCrop but the zeros around what is smaller than the crop.
Resampling CentreResampling(int64_t rows, int64_t columns, int64_t resize,
                            int64_t crop);
// Adds those zeros, on all sides alike, where the image has fewer than `side`
// rows or columns.
void PadToSquare(Tensor* image, int64_t side);

// The resampling of RandomResizedCrop.
Resampling RandomResampling(int64_t rows, int64_t columns, int64_t side,
                            uint64_t key, const RandomCrop& crop);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_CROPS_H_
