// Resizing beside a plain loop over its definition, and the vectors' loops
// beside the portable ones.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "io/images/image.h"
#include "io/images/resample.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using testing::Random;

Tensor RandomImage(Random& random, int64_t height, int64_t width,
                   int64_t channels) {
  Tensor image(DType::kUInt8, {height, width, channels});
  uint8_t* to = image.data<uint8_t>();
  // Extremes too, where sums are largest.
  const bool extreme = random.Between(0, 3) == 0;
  for (int64_t n = image.elements(); n > 0; --n) {
    const int64_t value = random.Between(0, 255);
    *to++ = static_cast<uint8_t>(extreme ? (value > 20 ? 255 : 0) : value);
  }
  return image;
}

int64_t Rounded(double x) {
  return static_cast<int64_t>(std::floor(x + 0.5));
}

// One axis as Pillow's ImagingResample defines it: image [before,from,after]
// becomes [before,to,after].
Tensor ResizedAxis(const Tensor& image, int64_t before, int64_t from,
                   int64_t after, int64_t to) {
  Tensor out(DType::kUInt8, {before, to, after});
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = scale < 1 ? 1 : scale;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(Rounded(centre - reach), 0);
    const int64_t last = std::min(Rounded(centre + reach), from);
    std::vector<double> weights;
    double sum = 0;
    for (int64_t j = first; j < last; ++j) {
      const double x = (static_cast<double>(j) - centre + 0.5) / reach;
      weights.push_back(std::abs(x) < 1 ? 1 - std::abs(x) : 0);
      sum += weights.back();
    }
    for (int64_t b = 0; b < before; ++b) {
      for (int64_t a = 0; a < after; ++a) {
        int64_t total = 1 << 21;
        for (int64_t j = first; j < last; ++j) {
          const int64_t weight = Rounded(weights[j - first] / sum * (1 << 22));
          total += weight * image.data<uint8_t>()[(b * from + j) * after + a];
        }
        out.data<uint8_t>()[(b * to + i) * after + a] =
            static_cast<uint8_t>(std::min<int64_t>(total >> 22, 255));
      }
    }
  }
  return out;
}

Tensor Reference(const Tensor& image, int64_t height, int64_t width) {
  const int64_t rows = image.shape()[0], columns = image.shape()[1],
                channels = image.shape()[2];
  const Tensor narrow = ResizedAxis(image, rows, columns, channels, width);
  return ResizedAxis(narrow, 1, rows, width * channels, height)
      .Reshaped({height, width, channels});
}

TEST_CASE("resizing is two rounded passes of a triangle's weights") {
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    const int64_t most = i % 20 == 0 ? 600 : 70;
    const int64_t channels = i % 3 != 0 ? 3 : random.Between(1, 4);
    const Tensor image = RandomImage(random, random.Between(1, most),
                                     random.Between(1, most), channels);
    const int64_t height = random.Between(1, most);
    const int64_t width = random.Between(1, most);
    CAPTURE(image.shape().ToString());
    CAPTURE(height);
    CAPTURE(width);
    CHECK(
        Resize(image, height, width).BitEqual(Reference(image, height, width)));
  }
}

ImagePart RandomRectangle(Random& random, int64_t height, int64_t width) {
  ImagePart part;
  part.height = random.Between(1, height);
  part.width = random.Between(1, width);
  part.top = random.Between(0, height - part.height);
  part.left = random.Between(0, width - part.width);
  return part;
}

Tensor CropTo(const Tensor& image, const ImagePart& part) {
  return Crop(image, part.top, part.left, part.height, part.width);
}

TEST_CASE("a part resized, kept in part and flipped") {
  Random random(2);
  for (int i = 0; i < 300; ++i) {
    const Tensor image =
        RandomImage(random, random.Between(1, 80), random.Between(1, 80), 3);
    Resampling how;
    how.part = RandomRectangle(random, image.shape()[0], image.shape()[1]);
    how.height = random.Between(1, 60);
    how.width = random.Between(1, 60);
    how.kept = RandomRectangle(random, how.height, how.width);
    how.flip = i % 2 == 1;
    const Tensor resized =
        Reference(CropTo(image, how.part), how.height, how.width);
    const Tensor kept = CropTo(resized, how.kept);
    CAPTURE(i);
    CHECK(Resample(image, how)
              .BitEqual(how.flip ? FlipHorizontally(kept) : kept));
  }
}

// Sources of any lengths and gaps, not only as a triangle has them.
ResampleKernel RandomKernel(Random& random, int64_t from, int64_t to) {
  ResampleKernel kernel;
  for (int64_t i = 0; i < to; ++i) {
    const int64_t count = random.Between(1, std::min<int64_t>(from, 9));
    kernel.sources.push_back({random.Between(0, from - count), count});
    kernel.taps = std::max(kernel.taps, (count + 3) / 4 * 4);
  }
  const bool falling = random.Between(0, 1) == 1;
  std::sort(kernel.sources.begin(), kernel.sources.end(),
            [&](const auto& a, const auto& b) {
              return falling ? a.first > b.first : a.first < b.first;
            });
  for (const ResampleKernel::Source& source : kernel.sources) {
    int64_t left = 1 << kWeightBits;
    for (int64_t t = 0; t < kernel.taps; ++t) {
      const int64_t weight = t >= source.count       ? 0
                             : t + 1 == source.count ? left
                                                     : random.Between(0, left);
      kernel.weights.push_back(static_cast<int32_t>(weight));
      left -= weight;
    }
  }
  return kernel;
}

TEST_CASE("every machine's loops give the portable ones' bytes") {
  const ResampleLoops& portable = PortableResampleLoops();
  const ResampleLoops& fastest = FastestResampleLoops();
  if (&portable == &fastest) {
    MESSAGE("skipped: this machine has no faster ones");
    return;
  }
  Random random(3);
  for (int i = 0; i < 400; ++i) {
    const int64_t channels = random.Between(1, 4);
    const int64_t from = random.Between(1, 60), to = random.Between(1, 60);
    const Tensor rows = RandomImage(random, from, from, channels);
    const ResampleKernel kernel = RandomKernel(random, from, to);
    // Of their exact sizes, so that a sanitizer sees a step beyond them.
    const std::vector<uint8_t> row(rows.data<uint8_t>(),
                                   rows.data<uint8_t>() + from * channels);
    std::vector<uint8_t> want(to * channels), got(to * channels);
    portable.across(kernel, row.data(), from, channels, want.data());
    fastest.across(kernel, row.data(), from, channels, got.data());
    CHECK(want == got);
    const int64_t row_bytes = from * channels;
    want.resize(row_bytes);
    got.resize(row_bytes);
    for (int64_t y = 0; y < to; ++y) {
      portable.down(kernel, y, rows.data<uint8_t>(), row_bytes, want.data());
      fastest.down(kernel, y, rows.data<uint8_t>(), row_bytes, got.data());
      CHECK(want == got);
    }
  }
}

// torchvision's CenterCrop: half of what is missing, rounded down, comes
// before.
TEST_CASE("a crop larger than the image has zeros around it") {
  for (int64_t side = 1; side <= 9; ++side) {
    const Tensor white = Tensor::Full(DType::kUInt8, {side, side, 3}, 255);
    const Tensor crop = ResizeAndCrop(white, side, 9);
    REQUIRE(crop.shape() == Shape{9, 9, 3});
    const int64_t before = (9 - side) / 2;
    for (int64_t y = 0; y < 9; ++y) {
      for (int64_t x = 0; x < 9; ++x) {
        const bool inside = y >= before && y < before + side && x >= before &&
                            x < before + side;
        CHECK(crop.data<uint8_t>()[(y * 9 + x) * 3] == (inside ? 255 : 0));
      }
    }
  }
}

}  // namespace
}  // namespace sluice
