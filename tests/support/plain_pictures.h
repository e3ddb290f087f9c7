// Pictures to augment.
#ifndef SLUICE_TESTS_SUPPORT_PLAIN_PICTURES_H_
#define SLUICE_TESTS_SUPPORT_PLAIN_PICTURES_H_

#include <cstdint>

#include "engine/tensor.h"
#include "io/counter_random.h"

namespace sluice::testing {

// Without a byte of 100 to 130, of which ImageNet's mean colour is.
inline Tensor Picture(int64_t height, int64_t width) {
  Tensor image(DType::kUInt8, {height, width, 3});
  CounterRandom random(3);
  for (uint8_t& byte : image.values<uint8_t>()) {
    const auto level = static_cast<uint8_t>(random.Below(220));
    byte = level < 100 ? level : static_cast<uint8_t>(level + 31);
  }
  return image;
}

inline Tensor Plain(int64_t side, uint8_t level) {
  return Tensor::Full(DType::kUInt8, {side, side, 3}, level);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_PLAIN_PICTURES_H_
