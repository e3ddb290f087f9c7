#include "io/images/stretch.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sluice {

Tensor Stretched(const Tensor& image) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const float pixel : image.values<float>()) {
    if (!std::isfinite(pixel)) continue;
    low = std::min(low, double{pixel});
    high = std::max(high, double{pixel});
  }
  Tensor stretched = Tensor::Zeros(DType::kUInt8, image.shape());
  if (high <= low) return stretched;
  for (int64_t i = 0; i < image.elements(); ++i) {
    const double pixel = image.data<float>()[i];
    if (std::isnan(pixel)) continue;
    const double share = (std::clamp(pixel, low, high) - low) / (high - low);
    stretched.data<uint8_t>()[i] =
        static_cast<uint8_t>(std::lround(255 * share));
  }
  return stretched;
}

}  // namespace sluice
