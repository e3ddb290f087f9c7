// Changes of pictures: beside loops over their definitions, in integers or in
// real numbers, and beside Pillow's own bytes.
#include "io/images/picture_ops.h"
#include "tests/support/random.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numbers>

namespace sluice {
namespace {

using testing::Random;

// Of 0 to 24 rows and columns; noise, a narrow range, black and white, or one
// colour.
Tensor RandomPicture(Random& random) {
  Tensor image(DType::kUInt8,
               {random.Between(0, 24), random.Between(0, 24), 3});
  const int64_t kind = random.Between(0, 4), base = random.Between(0, 235);
  for (uint8_t& byte : image.values<uint8_t>()) {
    const int64_t noise = random.Between(0, 255);
    byte = static_cast<uint8_t>(kind == 0   ? base + noise % 20
                                : kind == 1 ? (noise > 99 ? 255 : 0)
                                : kind == 2 ? base
                                            : noise);
  }
  return image;
}

int At(const Tensor& image, int64_t y, int64_t x, int64_t c) {
  return image.data<uint8_t>()[(y * image.shape()[1] + x) * 3 + c];
}

// `wanted(y, x, c)` of every byte.
using Wanted = std::function<int64_t(int64_t y, int64_t x, int64_t c)>;

Tensor Filled(const Tensor& like, const Wanted& wanted) {
  Tensor image(DType::kUInt8, like.shape());
  uint8_t* to = image.data<uint8_t>();
  for (int64_t y = 0; y < like.shape()[0]; ++y) {
    for (int64_t x = 0; x < like.shape()[1]; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        *to++ = static_cast<uint8_t>(wanted(y, x, c));
      }
    }
  }
  return image;
}

void ForRandomPictures(
    int count, const std::function<void(Random&, const Tensor&)>& body) {
  Random random(17);
  for (int i = 0; i < count; ++i) {
    CAPTURE(i);
    const Tensor image = RandomPicture(random);
    const Tensor before = image.Clone();
    body(random, image);
    REQUIRE(image.BitEqual(before));
  }
}

int64_t FloorDiv(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

// Between levels a and b by k / 256, which float holds without rounding.
int64_t Between(int64_t a, int64_t b, int64_t k) {
  return std::clamp<int64_t>(FloorDiv(256 * a + k * (b - a), 256), 0, 255);
}

int64_t LumaAt(const Tensor& image, int64_t y, int64_t x) {
  const double luma =
      (19595.0 * At(image, y, x, 0) + 38470.0 * At(image, y, x, 1) +
       7471.0 * At(image, y, x, 2)) /
      65536;
  return static_cast<int64_t>(std::floor(luma + 0.5));
}

int64_t MeanLuma(const Tensor& image) {
  double sum = 0;
  for (int64_t y = 0; y < image.shape()[0]; ++y) {
    for (int64_t x = 0; x < image.shape()[1]; ++x) sum += LumaAt(image, y, x);
  }
  return std::lround(sum / std::max(1.0, image.elements() / 3.0));
}

int64_t SmoothAt(const Tensor& image, int64_t y, int64_t x, int64_t c) {
  const int64_t rows = image.shape()[0], columns = image.shape()[1];
  if (y == 0 || x == 0 || y + 1 == rows || x + 1 == columns) {
    return At(image, y, x, c);
  }
  double sum = 4.0 / 13 * At(image, y, x, c);
  for (int64_t j = y - 1; j <= y + 1; ++j) {
    for (int64_t i = x - 1; i <= x + 1; ++i) {
      sum += 1.0 / 13 * At(image, j, i, c);
    }
  }
  return std::lround(sum);
}

TEST_CASE("blends with black, mean grey, grey and smooth") {
  ForRandomPictures(200, [](Random& random, const Tensor& image) {
    const int64_t k = random.Between(0, 3) == 0 ? 256 * random.Between(0, 1)
                                                : random.Between(0, 640);
    const double factor = static_cast<double>(k) / 256;
    const auto level = [&](int64_t y, int64_t x, int64_t c) {
      return At(image, y, x, c);
    };
    const auto blend = [&](const Wanted& degenerate) {
      return Filled(image, [&](int64_t y, int64_t x, int64_t c) {
        return Between(degenerate(y, x, c), level(y, x, c), k);
      });
    };
    const int64_t mean = MeanLuma(image);
    CHECK(AdjustBrightness(image, factor).BitEqual(blend([](auto...) {
      return 0;
    })));
    CHECK(AdjustContrast(image, factor).BitEqual(blend([&](auto...) {
      return mean;
    })));
    CHECK(AdjustSaturation(image, factor)
              .BitEqual(blend([&](int64_t y, int64_t x, int64_t) {
                return LumaAt(image, y, x);
              })));
    CHECK(AdjustSharpness(image, factor)
              .BitEqual(blend([&](int64_t y, int64_t x, int64_t c) {
                return SmoothAt(image, y, x, c);
              })));
  });
}

// Channel c of a colour of hue (sixths of a turn), saturation and value, in
// real numbers.
double HsvChannel(double sixths, double saturation, double value, int c) {
  const double k = std::fmod((c == 0 ? 5 : c == 1 ? 3 : 1) + sixths, 6);
  return value - value * saturation * std::clamp(std::min(k, 4 - k), 0.0, 1.0);
}

// The bytes that a real number can be cut off to, for rounding on the way.
std::array<int, 2> Cut(double x) {
  return {static_cast<int>(x - 1e-4), static_cast<int>(x + 1e-4)};
}

// Whether `got` is the colour turned by that many 255ths.
bool IsTurned(const std::array<int, 3>& rgb, int turn,
              const std::array<int, 3>& got) {
  const int most = std::max({rgb[0], rgb[1], rgb[2]});
  const int least = std::min({rgb[0], rgb[1], rgb[2]});
  const double range = most - least;
  double sixths = 0;
  if (most != least) {
    sixths = rgb[0] == most   ? (rgb[1] - rgb[2]) / range
             : rgb[1] == most ? 2 + (rgb[2] - rgb[0]) / range
                              : 4 + (rgb[0] - rgb[1]) / range;
  }
  if (sixths < 0) sixths += 6;
  for (const int hue : Cut(sixths / 6 * 255)) {
    for (const int saturation : Cut(most == 0 ? 0 : range / most * 255)) {
      const int turned = (hue + turn + 512) % 256;
      bool same = true;
      for (int c = 0; c < 3; ++c) {
        const double channel =
            HsvChannel(turned * 6 / 255.0, saturation / 255.0, most, c);
        same = same && std::abs(got[c] - channel) < 0.5 + 1e-3;
      }
      if (same) return true;
    }
  }
  return false;
}

TEST_CASE("hues are turned") {
  ForRandomPictures(200, [](Random& random, const Tensor& image) {
    const int turn = static_cast<int>(random.Between(-127, 127));
    // Cut towards 0.
    const double factor = (turn + (turn > 0   ? 0.4
                                   : turn < 0 ? -0.4
                                              : random.Real(-0.9, 0.9))) /
                          255;
    const Tensor turned = AdjustHue(image, factor);
    REQUIRE(turned.shape() == image.shape());
    const auto colour = [](const Tensor& of, int64_t i) {
      const uint8_t* rgb = of.data<uint8_t>() + i;
      return std::array<int, 3>{rgb[0], rgb[1], rgb[2]};
    };
    int64_t wrong = 0;
    for (int64_t i = 0; i < image.elements(); i += 3) {
      if (!IsTurned(colour(image, i), turn, colour(turned, i))) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("levels are cut, inverted, stretched and spread") {
  ForRandomPictures(200, [](Random& random, const Tensor& image) {
    const int64_t bits = random.Between(0, 8);
    const int64_t step = int64_t{256} >> bits;
    CHECK(Posterize(image, static_cast<int>(bits))
              .BitEqual(Filled(image, [&](int64_t y, int64_t x, int64_t c) {
                return At(image, y, x, c) / step * step;
              })));
    const int64_t halves = random.Between(0, 512);
    CHECK(Solarize(image, static_cast<double>(halves) / 2)
              .BitEqual(Filled(image, [&](int64_t y, int64_t x, int64_t c) {
                const int64_t level = At(image, y, x, c);
                return 2 * level < halves ? level : 255 - level;
              })));
  });
}

// How many bytes of a channel `matches` is true of.
int64_t Count(const Tensor& image, int64_t c,
              const std::function<bool(int)>& matches) {
  int64_t count = 0;
  for (int64_t i = c; i < image.elements(); i += 3) {
    if (matches(image.data<uint8_t>()[i])) ++count;
  }
  return count;
}

TEST_CASE("autocontrast and equalize") {
  ForRandomPictures(200, [](Random&, const Tensor& image) {
    const int64_t pixels = image.elements() / 3;
    std::array<int, 3> low = {255, 255, 255}, high = {0, 0, 0};
    for (int64_t i = 0; i < image.elements(); ++i) {
      const int level = image.data<uint8_t>()[i];
      low[i % 3] = std::min(low[i % 3], level);
      high[i % 3] = std::max(high[i % 3], level);
    }
    const Tensor stretched = AutoContrast(image), flat = Equalize(image);
    REQUIRE(stretched.shape() == image.shape());
    REQUIRE(flat.shape() == image.shape());
    for (int64_t i = 0; i < image.elements(); ++i) {
      const int64_t c = i % 3;
      const int level = image.data<uint8_t>()[i];
      const int got = stretched.data<uint8_t>()[i];
      if (low[c] == high[c]) {
        REQUIRE(got == level);
      } else {
        const int above = (level - low[c]) * 255, range = high[c] - low[c];
        // A whole number may come out just below it in double.
        REQUIRE((got == above / range ||
                 (above % range == 0 && got == above / range - 1)));
      }
      const int64_t step =
          (pixels - Count(image, c, [&](int l) { return l == high[c]; })) / 255;
      const int64_t below = Count(image, c, [&](int l) { return l < level; });
      REQUIRE(flat.data<uint8_t>()[i] ==
              (step == 0 ? level
                         : std::min<int64_t>((step / 2 + below) / step, 255)));
    }
  });
}

int AtOrBlack(const Tensor& image, int64_t y, int64_t x, int64_t c) {
  const bool inside =
      y >= 0 && x >= 0 && y < image.shape()[0] && x < image.shape()[1];
  return inside ? At(image, y, x, c) : 0;
}

TEST_CASE("shears and translations") {
  ForRandomPictures(200, [](Random& random, const Tensor& image) {
    const int64_t k = random.Between(-256, 256);
    const double slope = static_cast<double>(k) / 256;
    // Where the centre of a pixel comes from, in 512ths.
    const auto from = [&](int64_t along, int64_t across) {
      return FloorDiv(512 * along + 256 + k * (2 * across + 1), 512);
    };
    CHECK(ShearX(image, slope)
              .BitEqual(Filled(image, [&](int64_t y, int64_t x, int64_t c) {
                return AtOrBlack(image, y, from(x, y), c);
              })));
    CHECK(ShearY(image, slope)
              .BitEqual(Filled(image, [&](int64_t y, int64_t x, int64_t c) {
                return AtOrBlack(image, from(y, x), x, c);
              })));
    const int64_t right = random.Between(-30, 30),
                  down = random.Between(-30, 30);
    CHECK(Translate(image, right, down)
              .BitEqual(Filled(image, [&](int64_t y, int64_t x, int64_t c) {
                return AtOrBlack(image, y - down, x - right, c);
              })));
  });
}

TEST_CASE("rotations") {
  int64_t compared = 0, all = 0;
  ForRandomPictures(300, [&](Random& random, const Tensor& image) {
    const double degrees = random.Real(-200, 200);
    const double turn = degrees / 180 * std::numbers::pi;
    const double middle_y = static_cast<double>(image.shape()[0]) / 2;
    const double middle_x = static_cast<double>(image.shape()[1]) / 2;
    const Tensor rotated = Rotate(image, degrees);
    REQUIRE(rotated.shape() == image.shape());
    for (int64_t y = 0; y < image.shape()[0]; ++y) {
      for (int64_t x = 0; x < image.shape()[1]; ++x, ++all) {
        const double dy = static_cast<double>(y) + 0.5 - middle_y;
        const double dx = static_cast<double>(x) + 0.5 - middle_x;
        // Rows grow downwards.
        const double old_x =
            middle_x + dx * std::cos(turn) - dy * std::sin(turn);
        const double old_y =
            middle_y + dx * std::sin(turn) + dy * std::cos(turn);
        // Too near to the edge of a pixel for positions in 65536ths.
        if (std::abs(old_x - std::round(old_x)) < 1e-3) continue;
        if (std::abs(old_y - std::round(old_y)) < 1e-3) continue;
        ++compared;
        for (int64_t c = 0; c < 3; ++c) {
          REQUIRE(At(rotated, y, x, c) ==
                  AtOrBlack(image, static_cast<int64_t>(std::floor(old_y)),
                            static_cast<int64_t>(std::floor(old_x)), c));
        }
      }
    }
  });
  CHECK(compared > all * 98 / 100);
}

TEST_CASE("right angles lose no pixel") {
  Random random(5);
  for (int64_t side = 1; side < 20; ++side) {
    Tensor image(DType::kUInt8, {side, side, 3});
    for (uint8_t& byte : image.values<uint8_t>()) {
      byte = static_cast<uint8_t>(random.Between(0, 255));
    }
    const int64_t last = side - 1;
    CHECK(Rotate(image, 0).BitEqual(image));
    CHECK(Rotate(image, 360).BitEqual(image));
    for (const double degrees : {90.0, -270.0}) {
      CHECK(Rotate(image, degrees)
                .BitEqual(Filled(image, [&](int64_t y, int64_t x, int64_t c) {
                  return At(image, x, last - y, c);
                })));
    }
    CHECK(Rotate(image, 180)
              .BitEqual(Filled(image, [&](int64_t y, int64_t x, int64_t c) {
                return At(image, last - y, last - x, c);
              })));
  }
}

uint32_t ChecksumOf(const Tensor& image) {
  return static_cast<uint32_t>(
      crc32(0, image.data<uint8_t>(), static_cast<uInt>(image.bytes())));
}

// CRC-32 of what torchvision 0.15.2 (_apply_op of autoaugment and functional's
// adjust_*, adjust_hue as of 0.29.2) with Pillow 13.0.0 makes of the picture.
TEST_CASE("the bytes are Pillow's") {
  Tensor image(DType::kUInt8, {23, 31, 3});
  uint32_t state = 1;
  for (uint8_t& byte : image.values<uint8_t>()) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(40 + (state >> 24) * 150 / 255);
  }
  REQUIRE(ChecksumOf(image) == 0x7562f2d5);
  CHECK(ChecksumOf(AdjustBrightness(image, 0.27)) == 0x83a17cf1);
  CHECK(ChecksumOf(AdjustBrightness(image, 1.9)) == 0x27c9d808);
  CHECK(ChecksumOf(AdjustContrast(image, 0.73)) == 0x2d2a5a26);
  CHECK(ChecksumOf(AdjustContrast(image, 1.6)) == 0x92cb2e65);
  CHECK(ChecksumOf(AdjustSaturation(image, 0.1)) == 0xb5f94525);
  CHECK(ChecksumOf(AdjustSaturation(image, 1.9)) == 0xbbdce4b2);
  CHECK(ChecksumOf(AdjustSharpness(image, 0.37)) == 0x8ea0c118);
  CHECK(ChecksumOf(AdjustSharpness(image, 1.81)) == 0x9a752eb6);
  CHECK(ChecksumOf(AdjustHue(image, 0.1)) == 0x6c4ee3d2);
  CHECK(ChecksumOf(AdjustHue(image, -0.37)) == 0xf0d8d678);
  CHECK(ChecksumOf(Posterize(image, 3)) == 0xdd41487a);
  CHECK(ChecksumOf(Solarize(image, 110.5)) == 0xba5e7748);
  CHECK(ChecksumOf(AutoContrast(image)) == 0x04289547);
  CHECK(ChecksumOf(Equalize(image)) == 0xa6f78bd4);
  CHECK(ChecksumOf(ShearX(image, 0.27)) == 0x43996aef);
  CHECK(ChecksumOf(ShearX(image, -0.3)) == 0x5b04695c);
  CHECK(ChecksumOf(ShearY(image, 0.09)) == 0xb01b31d1);
  CHECK(ChecksumOf(ShearY(image, -0.21)) == 0x8b981664);
  CHECK(ChecksumOf(Translate(image, -7, 0)) == 0xa8c8b054);
  CHECK(ChecksumOf(Translate(image, 0, 5)) == 0x0e284de9);
  CHECK(ChecksumOf(Rotate(image, 30)) == 0x6afe899c);
  CHECK(ChecksumOf(Rotate(image, -9)) == 0xd7b3b721);
}

}  // namespace
}  // namespace sluice
