// Random parts of other ranges than the usual ones, beside what torchvision
// documents of RandomResizedCrop, RandomHorizontalFlip and RandomCrop, written
// down here once more.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "io/counter_random.h"
#include "io/images/image.h"
#include "tests/support/plain_pictures.h"

namespace sluice {
namespace {

struct Rectangle {
  int64_t top, left, height, width;
  bool operator==(const Rectangle&) const = default;
};

Rectangle Of(const ImagePart& part) {
  return {part.top, part.left, part.height, part.width};
}

// RandomResizedCrop.get_params: the number of a draw in [0, 1) and of one in
// [0, n) come from `random`.
Rectangle TorchvisionPart(double height, double width, const RandomCrop& crop,
                          CounterRandom& random) {
  const double low = std::log(crop.ratio_min), high = std::log(crop.ratio_max);
  for (int i = 0; i < 10; ++i) {
    const double scale =
        crop.scale_min + random.Fraction() * (crop.scale_max - crop.scale_min);
    const double target = height * width * scale;
    const double ratio = std::exp(low + random.Fraction() * (high - low));
    const double w = std::nearbyint(std::sqrt(target * ratio));
    const double h = std::nearbyint(std::sqrt(target / ratio));
    if (0 < w && w <= width && 0 < h && h <= height) {
      const int64_t top = random.Below(static_cast<uint32_t>(height - h + 1));
      const int64_t left = random.Below(static_cast<uint32_t>(width - w + 1));
      return {top, left, static_cast<int64_t>(h), static_cast<int64_t>(w)};
    }
  }
  // The central crop.
  double h = height, w = width;
  if (width / height < crop.ratio_min) {
    h = std::nearbyint(w / crop.ratio_min);
  } else if (width / height > crop.ratio_max) {
    w = std::nearbyint(h * crop.ratio_max);
  }
  const auto high_part = static_cast<int64_t>(std::max(h, 1.0));
  const auto wide_part = static_cast<int64_t>(std::max(w, 1.0));
  return {(static_cast<int64_t>(height) - high_part) / 2,
          (static_cast<int64_t>(width) - wide_part) / 2, high_part, wide_part};
}

RandomCrop DrawCrop(CounterRandom& random) {
  const auto up_to = [&](double most) { return most * random.Fraction(); };
  RandomCrop crop;
  if (random.Below(4) > 0) {
    crop.scale_max = 0.02 + up_to(0.98);
    crop.scale_min = random.Below(4) == 0 ? crop.scale_max
                                          : 0.01 + up_to(crop.scale_max - 0.01);
  }
  if (random.Below(3) > 0) {
    crop.ratio_min = std::exp(up_to(4) - 3);
    crop.ratio_max = crop.ratio_min * (1 + up_to(3));
  }
  crop.flip = random.Fraction();
  return crop;
}

TEST_CASE("parts of any ranges are torchvision's") {
  CounterRandom random(5);
  int64_t differ = 0, central = 0;
  constexpr int kCases = 4000;
  for (int i = 0; i < kCases; ++i) {
    const RandomCrop crop = DrawCrop(random);
    const int64_t rows = 1 + random.Below(random.Below(3) == 0 ? 8 : 600);
    const int64_t columns = 1 + random.Below(random.Below(3) == 0 ? 8 : 600);
    const uint64_t key = HashKey(9, i);
    CounterRandom draws(key);
    const Rectangle want = TorchvisionPart(
        static_cast<double>(rows), static_cast<double>(columns), crop, draws);
    const auto [part, flip] = DrawRandomPart(rows, columns, key, crop);
    // Where a side is as near to one number of pixels as to another, the last
    // bit of a logarithm decides.
    differ += Of(part) == want ? 0 : 1;
    if (Of(part) == want) {
      REQUIRE(flip == (draws.Fraction() >= 1 - crop.flip));
    }
    REQUIRE(part.top >= 0);
    REQUIRE(part.left >= 0);
    REQUIRE(part.height >= 1);
    REQUIRE(part.width >= 1);
    REQUIRE(part.top + part.height <= rows);
    REQUIRE(part.left + part.width <= columns);
    central += part.top == (rows - part.height) / 2 &&
                       part.left == (columns - part.width) / 2
                   ? 1
                   : 0;
  }
  CHECK(differ <= 2);
  CHECK(central > kCases / 50);
  CHECK(central < kCases * 3 / 4);
}

// What trainings drew when there were no other ranges.
TEST_CASE("the usual parts are those of earlier versions, to the bit") {
  for (uint64_t key = 0; key < 20000; ++key) {
    CounterRandom size(HashKey(3, key));
    const int64_t rows = 20 + size.Below(700), columns = 20 + size.Below(700);
    CounterRandom random(key);
    const auto area = static_cast<double>(rows * columns);
    const RandomPart got = DrawRandomPart(rows, columns, key);
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double target = area * (0.08 + 0.92 * random.Fraction());
      const double ratio =
          std::exp((2 * random.Fraction() - 1) * std::log(4.0 / 3));
      const int64_t width = std::lrint(std::sqrt(target * ratio));
      const int64_t height = std::lrint(std::sqrt(target / ratio));
      if (width > columns || height > rows) continue;
      const int64_t top =
          random.Below(static_cast<uint32_t>(rows - height + 1));
      const int64_t left =
          random.Below(static_cast<uint32_t>(columns - width + 1));
      REQUIRE((Of(got.part) == Rectangle{top, left, height, width}));
      REQUIRE(got.flip == (random.Below(2) == 1));
      break;
    }
  }
}

TEST_CASE("scales and ratios are drawn evenly between their ends") {
  const RandomCrop crop = {.scale_min = 0.2,
                           .scale_max = 0.6,
                           .ratio_min = 0.5,
                           .ratio_max = 3,
                           .flip = 0.8};
  constexpr int kDraws = 20000;
  std::vector<int> scales(10), ratios(10);
  int flips = 0;
  for (uint64_t key = 0; key < kDraws; ++key) {
    // So large that rounding is not felt, and each draw fits.
    const auto [part, flip] = DrawRandomPart(8000, 8000, key, crop);
    const auto h = static_cast<double>(part.height);
    const auto w = static_cast<double>(part.width);
    const double scale = (h * w / 64e6 - 0.2) / 0.4;
    const double ratio = std::log(w / h / 0.5) / std::log(6);
    if (h < 7000 && w < 7000) {
      ++scales[std::clamp<int>(static_cast<int>(scale * 10), 0, 9)];
    }
    ++ratios[std::clamp<int>(static_cast<int>(ratio * 10), 0, 9)];
    REQUIRE(scale > -0.001);
    REQUIRE(scale < 1.001);
    REQUIRE(ratio > -0.001);
    REQUIRE(ratio < 1.001);
    flips += flip ? 1 : 0;
  }
  // Five standard deviations; wide parts of much of the area do not fit.
  for (int i = 0; i < 6; ++i) CHECK(std::abs(ratios[i] - kDraws / 10) < 350);
  for (int i = 0; i < 4; ++i) CHECK(scales[i] > kDraws / 12);
  CHECK(std::abs(flips - kDraws * 8 / 10) < 300);
}

TEST_CASE("flipping never, always and so often") {
  const Tensor image = testing::Picture(12, 12);
  for (uint64_t key = 0; key < 300; ++key) {
    const auto cut = [&](double flip) {
      return RandomResizedCrop(image, 8, key, {.flip = flip});
    };
    const auto pad = [&](double flip) {
      return RandomPadCrop(image, 3, key, flip);
    };
    REQUIRE(cut(1).BitEqual(FlipHorizontally(cut(0))));
    REQUIRE(pad(1).BitEqual(FlipHorizontally(pad(0))));
    REQUIRE(pad(0.5).BitEqual(RandomPadCrop(image, 3, key)));
    REQUIRE(cut(0.5).BitEqual(RandomResizedCrop(image, 8, key)));
  }
  const auto flipped = [&](double flip) {
    int64_t count = 0;
    for (uint64_t key = 0; key < 2000; ++key) {
      count += RandomPadCrop(image, 0, key, flip).BitEqual(image) ? 0 : 1;
    }
    return static_cast<double>(count) / 2000;
  };
  for (const double flip : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    CHECK(std::abs(flipped(flip) - flip) < 0.06);
  }
}

}  // namespace
}  // namespace sluice
