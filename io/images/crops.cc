// The crops of io/images/image.h, and which pixels they are made of.
#include "io/images/crops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/counter_random.h"
#include "io/images/image.h"

namespace sluice {
namespace {

bool Flips(CounterRandom& random, double probability) {
  return random.Fraction() >= 1 - probability;
}

// Half to even, as Python's round does.
int64_t RoundedToEven(double x) {
  return std::lrint(x);
}

// Where the middle `crop` pixels of `size` begin; below 0 where these are less,
// and zeros come before and behind.
int64_t Middle(int64_t size, int64_t crop) {
  if (size < crop) return -((crop - size) / 2);
  return RoundedToEven(static_cast<double>(size - crop) / 2);
}

struct Size {
  int64_t height, width;
};
// With the shorter side `resize` long.
Size Resized(int64_t rows, int64_t columns, int64_t resize) {
  return rows < columns ? Size{resize, resize * columns / rows}
                        : Size{resize * rows / columns, resize};
}

}  // namespace

Resampling CentreResampling(int64_t rows, int64_t columns, int64_t resize,
                            int64_t crop) {
  const auto [height, width] = Resized(rows, columns, resize);
  const ImagePart kept = {std::max<int64_t>(Middle(height, crop), 0),
                          std::max<int64_t>(Middle(width, crop), 0),
                          std::min(height, crop), std::min(width, crop)};
  return {{0, 0, rows, columns}, height, width, kept};
}

void PadToSquare(Tensor* image, int64_t side) {
  const int64_t height = image->shape()[0], width = image->shape()[1];
  if (height == side && width == side) return;
  *image = Crop(*image, Middle(height, side), Middle(width, side), side, side);
}

Resampling RandomResampling(int64_t rows, int64_t columns, int64_t side,
                            uint64_t key, const RandomCrop& crop) {
  const RandomPart random = DrawRandomPart(rows, columns, key, crop);
  return {random.part, side, side, {0, 0, side, side}, random.flip};
}

Tensor ResizeAndCrop(const Tensor& image, int64_t resize, int64_t crop) {
  const Resampling resampling =
      CentreResampling(image.shape()[0], image.shape()[1], resize, crop);
  Tensor cut = Resample(image, resampling);
  PadToSquare(&cut, crop);
  return cut;
}

Tensor ResizeAndTenCrop(const Tensor& image, int64_t resize, int64_t crop) {
  if (crop > resize) {
    throw Error(Code::kInvalidArgument,
                fmt::format("ResizeAndTenCrop: the crop is {} pixels long, the "
                            "image's shorter side becomes {}",
                            crop, resize));
  }
  const int64_t rows = image.shape()[0], columns = image.shape()[1];
  const auto [height, width] = Resized(rows, columns, resize);
  const int64_t down = height - crop, right = width - crop;
  const struct {
    int64_t top, left;
  } places[] = {{0, 0},
                {0, right},
                {down, 0},
                {down, right},
                {Middle(height, crop), Middle(width, crop)}};
  Tensor crops(DType::kUInt8, {10, crop, crop, image.shape()[2]});
  uint8_t* to = crops.data<uint8_t>();
  for (const bool flip : {false, true}) {
    for (const auto [top, left] : places) {
      const ImagePart kept = {top, flip ? right - left : left, crop, crop};
      // Each by itself: a picture that is a line would be resized to millions
      // of pixels.
      const Tensor one =
          Resample(image, {{0, 0, rows, columns}, height, width, kept, flip});
      to = std::copy_n(one.data<uint8_t>(), one.elements(), to);
    }
  }
  return crops;
}

RandomPart DrawRandomPart(int64_t rows, int64_t columns, uint64_t key,
                          const RandomCrop& crop) {
  CounterRandom random(key);
  const auto area = static_cast<double>(rows * columns);
  // The whole, cut to the nearest allowed ratio, when no draw fits.
  ImagePart part;
  const auto at_most = [](int64_t most, double side) {
    return std::min(most, std::max<int64_t>(RoundedToEven(side), 1));
  };
  part.height = at_most(rows, static_cast<double>(columns) / crop.ratio_min);
  part.width = at_most(columns, static_cast<double>(rows) * crop.ratio_max);
  part.top = (rows - part.height) / 2;
  part.left = (columns - part.width) / 2;
  // So that the middle of 3/4 and 4/3 is 0 to the bit, and what trainings drew
  // before there were others is drawn still.
  const double narrow = -std::log(1 / crop.ratio_min);
  const double wide = std::log(crop.ratio_max);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target =
        area * (crop.scale_min +
                (crop.scale_max - crop.scale_min) * random.Fraction());
    const double ratio =
        std::exp((narrow + wide) / 2 +
                 (2 * random.Fraction() - 1) * ((wide - narrow) / 2));
    const int64_t width = RoundedToEven(std::sqrt(target * ratio));
    const int64_t height = RoundedToEven(std::sqrt(target / ratio));
    if (width < 1 || height < 1 || width > columns || height > rows) continue;
    part.top = random.Below(static_cast<uint32_t>(rows - height + 1));
    part.left = random.Below(static_cast<uint32_t>(columns - width + 1));
    part.height = height;
    part.width = width;
    break;
  }
  return {part, Flips(random, crop.flip)};
}

Tensor RandomResizedCrop(const Tensor& image, int64_t side, uint64_t key,
                         const RandomCrop& crop) {
  return Resample(image, RandomResampling(image.shape()[0], image.shape()[1],
                                          side, key, crop));
}

Tensor RandomPadCrop(const Tensor& image, int64_t pad, uint64_t key,
                     double flip) {
  CounterRandom random(key);
  const auto shift = static_cast<int32_t>(pad);
  const int64_t top = random.Between(-shift, shift);
  const int64_t left = random.Between(-shift, shift);
  const Tensor part =
      Crop(image, top, left, image.shape()[0], image.shape()[1]);
  return Flips(random, flip) ? FlipHorizontally(part) : part;
}

}  // namespace sluice
