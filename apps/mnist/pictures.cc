#include "apps/mnist/pictures.h"

#include <algorithm>
#include <cmath>

#include "io/images/image.h"
#include "io/sources/image_list.h"

namespace sluice::mnist {
namespace {

constexpr int64_t kSide = 28, kDigit = 20;
// Of the range between a picture's darkest and brightest pixel, what still
// counts as background.
constexpr double kBackground = 0.25;

// [height,width] of shades from 0, the background, to 255, the digit.
Tensor Shades(const Tensor& picture) {
  const int64_t height = picture.shape()[0], width = picture.shape()[1];
  const uint8_t* rgb = picture.data<uint8_t>();
  std::vector<double> grey(height * width);
  for (size_t i = 0; i < grey.size(); ++i) {  // ITU-R BT.601
    grey[i] =
        0.299 * rgb[3 * i] + 0.587 * rgb[3 * i + 1] + 0.114 * rgb[3 * i + 2];
  }
  double border = 0;
  int64_t count = 0;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      if (y > 0 && y < height - 1 && x > 0 && x < width - 1) continue;
      border += grey[y * width + x];
      ++count;
    }
  }
  const auto [least, most] = std::minmax_element(grey.begin(), grey.end());
  const double low = *least, range = std::max(*most - low, 1.0);
  const bool dark_on_light =
      border / static_cast<double>(count) > low + range / 2;
  Tensor shades(DType::kUInt8, {height, width, 1});
  for (size_t i = 0; i < grey.size(); ++i) {
    const double shade = (grey[i] - low) / range;
    const double digit = dark_on_light ? 1 - shade : shade;
    shades.data<uint8_t>()[i] = static_cast<uint8_t>(
        *most - low < 1 || digit < kBackground ? 0 : std::lround(255 * digit));
  }
  return shades;
}

struct Box {
  int64_t top, left, height, width;
};

// Around what is not background; of no size where all is.
Box DigitIn(const Tensor& shades) {
  const int64_t height = shades.shape()[0], width = shades.shape()[1];
  int64_t top = height, left = width, bottom = 0, right = 0;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      if (shades.data<uint8_t>()[y * width + x] == 0) continue;
      top = std::min(top, y);
      left = std::min(left, x);
      bottom = std::max(bottom, y + 1);
      right = std::max(right, x + 1);
    }
  }
  return {top, left, std::max<int64_t>(bottom - top, 0),
          std::max<int64_t>(right - left, 0)};
}

// The whole number nearest to the middle less the centre of mass.
int64_t Shift(double weighted, double mass) {
  return std::lround((kSide - 1) / 2.0 - weighted / mass);
}

}  // namespace

Tensor LikeMnist(const Tensor& picture) {
  Tensor digit = Tensor::Zeros(DType::kUInt8, {kSide, kSide, 1});
  const Tensor shades = Shades(picture);
  const Box box = DigitIn(shades);
  if (box.height == 0) return digit;
  const double scale = static_cast<double>(kDigit) /
                       static_cast<double>(std::max(box.height, box.width));
  const auto scaled = [&](int64_t length) {
    return std::max<int64_t>(1,
                             std::lround(scale * static_cast<double>(length)));
  };
  const Tensor small =
      Resize(Crop(shades, box.top, box.left, box.height, box.width),
             scaled(box.height), scaled(box.width));
  double mass = 0, down = 0, across = 0;
  const auto each = [&](const auto& fn) {
    for (int64_t y = 0; y < small.shape()[0]; ++y) {
      for (int64_t x = 0; x < small.shape()[1]; ++x) {
        fn(y, x, small.data<uint8_t>()[y * small.shape()[1] + x]);
      }
    }
  };
  each([&](int64_t y, int64_t x, uint8_t shade) {
    mass += shade;
    down += static_cast<double>(y) * shade;
    across += static_cast<double>(x) * shade;
  });
  if (mass == 0) return digit;
  const int64_t top = Shift(down, mass), left = Shift(across, mass);
  each([&](int64_t y, int64_t x, uint8_t shade) {
    const int64_t to_y = y + top, to_x = x + left;
    if (to_y < 0 || to_y >= kSide || to_x < 0 || to_x >= kSide) return;
    digit.data<uint8_t>()[to_y * kSide + to_x] = shade;
  });
  return digit;
}

Dataset Pictures(const RunContext& run) {
  ImageList list;
  list.paths = run.files;
  list.labels.assign(run.files.size(), 0);
  return Indices(list).Map(
      [files = run.files](Example& example) {
        const std::string& path = files[example["index"].IntAt(0)];
        example = {{"image", LikeMnist(ReadImage(path).ValueOrThrow())},
                   {"label", example["label"]}};
      },
      {.bad = run.bad_examples,
       .threads = run.input_threads,
       .name = "decode"});
}

}  // namespace sluice::mnist
