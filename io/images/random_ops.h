// The parts of an Augmentation (io/images/augment.h, which says what each
// does). Images are uint8 [height,width,3]; `key` decides what is drawn.
#ifndef SLUICE_IO_IMAGES_RANDOM_OPS_H_
#define SLUICE_IO_IMAGES_RANDOM_OPS_H_

#include <array>
#include <cstdint>

#include "engine/tensor.h"

namespace sluice {

// RandAugment's magnitudes are 0 to this.
inline constexpr int kMaxMagnitude = 30;

Tensor RandAugment(const Tensor& image, int operations, int magnitude,
                   uint64_t key);

Tensor RandomErasing(const Tensor& image, double probability,
                     const std::array<uint8_t, 3>& fill, uint64_t key);

// How far each factor may be from 1, and the hue from where it is.
struct JitterRanges {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
};
Tensor ColorJitter(const Tensor& image, const JitterRanges& ranges,
                   uint64_t key);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_RANDOM_OPS_H_
