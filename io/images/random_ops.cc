#include "io/images/random_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/counter_random.h"
#include "io/images/image.h"
#include "io/images/picture_ops.h"

namespace sluice {
namespace {

// In [low, high).
double Uniform(CounterRandom& random, double low, double high) {
  return low + (high - low) * random.Fraction();
}

// What RandAugment draws from, in torchvision's order.
enum class Operation : uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize
};
constexpr uint32_t kOperations = 14;

// torch.linspace(first, last, 31)[magnitude]: float, from the nearer end, each
// product and sum rounded once.
double Spaced(double first, double last, int magnitude) {
  const auto begin = static_cast<float>(first), end = static_cast<float>(last);
  const double step = (end - begin) / kMaxMagnitude;
  return static_cast<float>(magnitude < 15
                                ? begin + step * magnitude
                                : end - step * (kMaxMagnitude - magnitude));
}

// The sign is 1 or -1.
Tensor Operate(const Tensor& image, Operation operation, int magnitude,
               int sign) {
  const auto up_to = [&](double most) {
    return sign * Spaced(0, most, magnitude);
  };
  const auto pixels = [&](int64_t side) {
    return static_cast<int64_t>(up_to(150.0 / 331 * static_cast<double>(side)));
  };
  switch (operation) {
    case Operation::kIdentity:
      return image;
    case Operation::kShearX:
      return ShearX(image, up_to(0.3));
    case Operation::kShearY:
      return ShearY(image, up_to(0.3));
    case Operation::kTranslateX:
      return Translate(image, pixels(image.shape()[1]), 0);
    case Operation::kTranslateY:
      return Translate(image, 0, pixels(image.shape()[0]));
    case Operation::kRotate:
      return Rotate(image, up_to(30));
    case Operation::kBrightness:
      return AdjustBrightness(image, 1 + up_to(0.9));
    case Operation::kColor:
      return AdjustSaturation(image, 1 + up_to(0.9));
    case Operation::kContrast:
      return AdjustContrast(image, 1 + up_to(0.9));
    case Operation::kSharpness:
      return AdjustSharpness(image, 1 + up_to(0.9));
    case Operation::kPosterize:
      return Posterize(image,
                       8 - static_cast<int>(std::lround(magnitude / 7.5)));
    case Operation::kSolarize:
      return Solarize(image, Spaced(255, 0, magnitude));
    case Operation::kAutoContrast:
      return AutoContrast(image);
    case Operation::kEqualize:
      return Equalize(image);
  }
  return image;
}

// The part to erase; empty when ten draws did not fit.
ImagePart DrawErased(int64_t rows, int64_t columns, CounterRandom& random) {
  const auto area = static_cast<double>(rows * columns);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * Uniform(random, 0.02, 0.33);
    const double ratio =
        std::exp(Uniform(random, std::log(0.3), std::log(3.3)));
    const int64_t height = std::lrint(std::sqrt(target * ratio));
    const int64_t width = std::lrint(std::sqrt(target / ratio));
    if (height >= rows || width >= columns) continue;
    const int64_t top = random.Below(static_cast<uint32_t>(rows - height + 1));
    const int64_t left =
        random.Below(static_cast<uint32_t>(columns - width + 1));
    return {top, left, height, width};
  }
  return {};
}

}  // namespace

Tensor RandAugment(const Tensor& image, int operations, int magnitude,
                   uint64_t key) {
  CounterRandom random(key);
  Tensor augmented = image;
  for (int i = 0; i < operations; ++i) {
    const auto operation = static_cast<Operation>(random.Below(kOperations));
    const int sign = random.Below(2) == 1 ? -1 : 1;
    augmented = Operate(augmented, operation, magnitude, sign);
  }
  return augmented;
}

Tensor RandomErasing(const Tensor& image, double probability,
                     const std::array<uint8_t, 3>& fill, uint64_t key) {
  CounterRandom random(key);
  if (Uniform(random, 0, 1) >= probability) return image;
  const int64_t columns = image.shape()[1];
  const ImagePart part = DrawErased(image.shape()[0], columns, random);
  Tensor erased = image.Clone();
  for (int64_t y = part.top; y < part.top + part.height; ++y) {
    uint8_t* to = erased.data<uint8_t>() + (y * columns + part.left) * 3;
    for (int64_t x = 0; x < part.width; ++x, to += 3) {
      std::copy(fill.begin(), fill.end(), to);
    }
  }
  return erased;
}

Tensor ColorJitter(const Tensor& image, const JitterRanges& ranges,
                   uint64_t key) {
  CounterRandom random(key);
  std::array<int, 4> order = {0, 1, 2, 3};
  for (uint32_t i = 3; i > 0; --i) {
    std::swap(order[i], order[random.Below(i + 1)]);
  }
  // All are drawn, so that none depends on whether another is wanted.
  const auto factor = [&](double range) {
    return Uniform(random, std::max(1 - range, 0.0), 1 + range);
  };
  const double brightness = factor(ranges.brightness);
  const double contrast = factor(ranges.contrast);
  const double saturation = factor(ranges.saturation);
  const double hue = Uniform(random, -ranges.hue, ranges.hue);
  Tensor jittered = image;
  for (const int i : order) {
    if (i == 0 && ranges.brightness != 0) {
      jittered = AdjustBrightness(jittered, brightness);
    } else if (i == 1 && ranges.contrast != 0) {
      jittered = AdjustContrast(jittered, contrast);
    } else if (i == 2 && ranges.saturation != 0) {
      jittered = AdjustSaturation(jittered, saturation);
    } else if (i == 3 && ranges.hue != 0) {
      jittered = AdjustHue(jittered, hue);
    }
  }
  return jittered;
}

}  // namespace sluice
