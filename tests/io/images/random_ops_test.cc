// What RandAugment, RandomErasing and ColorJitter draw: beside the changes of
// io/images/picture_ops.h, and how often, as the papers and torchvision state.
#include "io/images/random_ops.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/images/picture_ops.h"
#include "tests/support/plain_pictures.h"

namespace sluice {
namespace {

using testing::Picture;
using testing::Plain;

constexpr std::array<uint8_t, 3> kFill = {124, 116, 104};

// Of `trials`, at most five standard deviations from what is expected.
bool IsLikely(int64_t count, int64_t trials, double probability) {
  const double expected = static_cast<double>(trials) * probability;
  const double deviation = std::sqrt(expected * (1 - probability));
  const bool likely =
      std::abs(static_cast<double>(count) - expected) <= 5 * deviation;
  if (!likely) MESSAGE(count << " of " << trials << ", wanted " << expected);
  return likely;
}

// What one operation of magnitude 9 makes of a picture, with the probability.
std::vector<std::pair<Tensor, double>> Outcomes(const Tensor& image) {
  std::vector<std::pair<Tensor, double>> outcomes;
  const auto add = [&](const Tensor& outcome, int of) {
    outcomes.emplace_back(outcome, 1.0 / of);
  };
  add(image, 14);
  for (const int sign : {-1, 1}) {
    const double width = static_cast<double>(image.shape()[1]) * 150 / 331;
    const double height = static_cast<double>(image.shape()[0]) * 150 / 331;
    add(ShearX(image, sign * 0.09), 28);
    add(ShearY(image, sign * 0.09), 28);
    add(Translate(image, sign * static_cast<int64_t>(width * 9 / 30), 0), 28);
    add(Translate(image, 0, sign * static_cast<int64_t>(height * 9 / 30)), 28);
    add(Rotate(image, sign * 9), 28);
    add(AdjustBrightness(image, 1 + sign * 0.27), 28);
    add(AdjustSaturation(image, 1 + sign * 0.27), 28);
    add(AdjustContrast(image, 1 + sign * 0.27), 28);
    add(AdjustSharpness(image, 1 + sign * 0.27), 28);
  }
  add(Posterize(image, 7), 14);
  add(Solarize(image, 178.5), 14);
  add(AutoContrast(image), 14);
  add(Equalize(image), 14);
  return outcomes;
}

std::string BytesOf(const Tensor& image) {
  return {reinterpret_cast<const char*>(image.raw()), image.bytes()};
}

// Large enough to be equalized, and of a range to be stretched.
Tensor Probe() {
  Tensor image = Posterize(Picture(18, 23), 7);
  for (uint8_t& byte : image.values<uint8_t>()) {
    byte = static_cast<uint8_t>(byte / 2 + 71);
  }
  return image;
}

TEST_CASE("RandAugment draws each operation and direction as often") {
  const Tensor image = Probe();
  std::map<std::string, std::pair<double, int64_t>> seen;
  for (const auto& [outcome, probability] : Outcomes(image)) {
    seen[BytesOf(outcome)] = {probability, 0};
  }
  REQUIRE(seen.size() == 23);  // all differ
  constexpr int64_t kKeys = 20000;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const auto at = seen.find(BytesOf(RandAugment(image, 1, 9, key)));
    REQUIRE(at != seen.end());
    ++at->second.second;
  }
  for (const auto& [outcome, counted] : seen) {
    CHECK(IsLikely(counted.second, kKeys, counted.first));
  }
}

TEST_CASE("RandAugment goes on where one operation less ends") {
  const Tensor image = Probe();
  std::set<std::string> second_steps;
  for (uint64_t key = 0; key < 300; ++key) {
    const std::string got = BytesOf(RandAugment(image, 3, 9, key));
    bool found = false;
    size_t index = 0;
    for (const auto& outcome : Outcomes(RandAugment(image, 2, 9, key))) {
      if (BytesOf(outcome.first) == got) {
        found = true;
        second_steps.insert(std::to_string(index));
      }
      ++index;
    }
    REQUIRE(found);
  }
  CHECK(second_steps.size() == 23);
}

TEST_CASE("RandAugment of magnitude 0 keeps what has a size") {
  const Tensor image = Probe();  // has no 255, which Solarize inverts
  const std::set<std::string> possible = {
      BytesOf(image), BytesOf(AutoContrast(image)), BytesOf(Equalize(image))};
  std::map<std::string, int64_t> seen;
  for (uint64_t key = 0; key < 2000; ++key) {
    const std::string got = BytesOf(RandAugment(image, 1, 0, key));
    REQUIRE(possible.contains(got));
    ++seen[got];
  }
  CHECK(IsLikely(seen[BytesOf(image)], 2000, 12.0 / 14));
}

bool IsFill(const Tensor& image, int64_t y, int64_t x) {
  return std::equal(kFill.begin(), kFill.end(),
                    image.data<uint8_t>() + (y * image.shape()[1] + x) * 3);
}

struct Rectangle {
  int64_t top = 0, left = 0, bottom = -1, right = -1;
  int64_t height() const { return bottom - top + 1; }
  int64_t width() const { return right - left + 1; }
};

// Of the fill; requires that it is a rectangle and that the rest is as before.
Rectangle ErasedOf(const Tensor& image, const Tensor& before) {
  Rectangle erased = {image.shape()[0], image.shape()[1], -1, -1};
  int64_t count = 0, wrong = 0;
  for (int64_t y = 0; y < image.shape()[0]; ++y) {
    for (int64_t x = 0; x < image.shape()[1]; ++x) {
      if (IsFill(image, y, x)) {
        ++count;
        erased = {std::min(erased.top, y), std::min(erased.left, x),
                  std::max(erased.bottom, y), std::max(erased.right, x)};
      } else {
        const int64_t at = (y * image.shape()[1] + x) * 3;
        wrong += std::equal(image.data<uint8_t>() + at,
                            image.data<uint8_t>() + at + 3,
                            before.data<uint8_t>() + at)
                     ? 0
                     : 1;
      }
    }
  }
  REQUIRE(wrong == 0);
  REQUIRE(count == (count == 0 ? 0 : erased.height() * erased.width()));
  return erased;
}

TEST_CASE("erasing: how often, how much, where") {
  constexpr int64_t kKeys = 20000, kSide = 64;
  const Tensor image = Picture(kSide, kSide);
  int64_t erased = 0, upper = 0, left = 0, tall = 0;
  double area_sum = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const Tensor result = RandomErasing(image, 0.25, kFill, key);
    if (result.raw() == image.raw()) continue;
    ++erased;
    const Rectangle part = ErasedOf(result, image);
    const auto height = static_cast<double>(part.height());
    const auto width = static_cast<double>(part.width());
    // Before the sides were rounded.
    constexpr double kArea = kSide * kSide;
    REQUIRE((height + 0.5) * (width + 0.5) >= 0.02 * kArea);
    REQUIRE((height - 0.5) * (width - 0.5) <= 0.33 * kArea);
    REQUIRE((height + 0.5) / (width - 0.5) >= 0.3);
    REQUIRE((height - 0.5) / (width + 0.5) <= 3.3);
    area_sum += height * width / kArea;
    // A free side has height + 1 places; the middle one counts for neither.
    upper += part.top < kSide - part.bottom - 1 ? 1 : 0;
    upper -= part.top > kSide - part.bottom - 1 ? 1 : 0;
    left += part.left < kSide - part.right - 1 ? 1 : 0;
    left -= part.left > kSide - part.right - 1 ? 1 : 0;
    tall += height > width ? 1 : 0;
    tall -= height < width ? 1 : 0;
  }
  CHECK(IsLikely(erased, kKeys, 0.25));
  const auto n = static_cast<double>(erased);
  // A uniform draw's mean; its deviation is 0.31 / sqrt(12).
  CHECK(std::abs(area_sum / n - 0.175) < 5 * 0.0895 / std::sqrt(n));
  CHECK(std::abs(static_cast<double>(upper)) < 5 * std::sqrt(n));
  CHECK(std::abs(static_cast<double>(left)) < 5 * std::sqrt(n));
  // The ratio's logarithm is uniform from log 0.3 to log 3.3, so that more are
  // tall: by (log 3.3 + log 0.3) / (log 3.3 - log 0.3).
  const double taller = std::log(3.3 * 0.3) / std::log(3.3 / 0.3);
  CHECK(std::abs(static_cast<double>(tall) - taller * n) < 5 * std::sqrt(n));
}

// Its brightness, where no channel differs.
int LevelOf(const Tensor& plain) {
  return plain.data<uint8_t>()[0];
}

TEST_CASE("jitter: factors are uniform in their ranges") {
  constexpr int64_t kKeys = 4000;
  const Tensor plain = Plain(2, 100);
  Tensor halves = Plain(2, 0);  // 0 and 200: mean grey 100
  std::fill_n(halves.data<uint8_t>(), 6, uint8_t{200});
  double brightness = 0, contrast = 0;
  int64_t few = 0, many = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const int level = LevelOf(ColorJitter(plain, {0.4}, key));
    REQUIRE(level >= 59);
    REQUIRE(level <= 140);
    brightness += level + 0.5;
    few += level < 70 ? 1 : 0;
    many += level >= 130 ? 1 : 0;
    const int bright = LevelOf(ColorJitter(halves, {0, 0.4}, key));
    REQUIRE(bright >= 159);
    REQUIRE(bright <= 240);
    contrast += bright + 0.5;
  }
  // 80 / sqrt(12) levels deviate.
  const double tolerance = 5 * 23.1 / std::sqrt(kKeys) + 0.1;
  CHECK(std::abs(brightness / kKeys - 100) < tolerance);
  CHECK(std::abs(contrast / kKeys - 200) < tolerance);
  CHECK(IsLikely(few, kKeys, 1.0 / 8));
  CHECK(IsLikely(many, kKeys, 1.0 / 8));
}

TEST_CASE("jitter: ranges end at 0, saturation and hue alone") {
  const Tensor image = Picture(8, 8);
  const Tensor plain = Plain(2, 10);
  std::set<int> levels;
  std::set<std::string> hues;
  for (uint64_t key = 0; key < 1000; ++key) {
    levels.insert(LevelOf(ColorJitter(plain, {10}, key)));
    // Grey has neither saturation nor hue.
    REQUIRE(ColorJitter(plain, {0, 0, 1, 0.5}, key).BitEqual(plain));
    const Tensor saturated = ColorJitter(image, {0, 0, 1}, key);
    const Tensor grey = AdjustSaturation(image, 0);
    const Tensor vivid = AdjustSaturation(image, 2);
    for (int64_t i = 0; i < image.elements(); ++i) {
      const auto [low, high] = std::minmax({grey.IntAt(i), vivid.IntAt(i)});
      REQUIRE(saturated.IntAt(i) >= low - 1);
      REQUIRE(saturated.IntAt(i) <= high);
    }
    hues.insert(BytesOf(ColorJitter(image, {0, 0, 0, 0.1}, key)));
  }
  CHECK(*levels.begin() <= 1);
  CHECK(*levels.rbegin() >= 108);
  // -25 to 25 of 255.
  std::set<std::string> possible;
  for (int turn = -25; turn <= 25; ++turn) {
    possible.insert(BytesOf(AdjustHue(image, (turn + 0.5) / 255)));
    possible.insert(BytesOf(AdjustHue(image, (turn - 0.5) / 255)));
  }
  for (const std::string& hue : hues) REQUIRE(possible.contains(hue));
  CHECK(hues.size() > 40);
}

// The factor of a brightness that turned levels 0 to 255 into these.
double BrightnessOf(const Tensor& ramp) {
  double low = 0, high = 2;
  for (int i = 1; i < 256; ++i) {
    const int level = ramp.data<uint8_t>()[3 * i];
    if (level == 255) break;
    low = std::max(low, static_cast<double>(level) / i);
    high = std::min(high, (level + 1.0) / i);
  }
  return (low + high) / 2;
}

int64_t Distance(const Tensor& a, const Tensor& b) {
  int64_t sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    sum += std::abs(a.IntAt(i) - b.IntAt(i));
  }
  return sum;
}

TEST_CASE("jitter: either order as often") {
  Tensor ramp(DType::kUInt8, {1, 256, 3});
  for (int i = 0; i < 256 * 3; ++i) {
    ramp.data<uint8_t>()[i] = static_cast<uint8_t>(i / 3);
  }
  // A quarter white, the rest black.
  Tensor dark = Plain(16, 0);
  std::fill_n(dark.data<uint8_t>(), 64 * 3, uint8_t{255});
  int64_t brightness_first = 0, decided = 0;
  for (uint64_t key = 0; key < 3000; ++key) {
    const double factor = BrightnessOf(ColorJitter(ramp, {1}, key));
    // Whose mean is 255 / 4: 0 becomes 63.75 * (1 - contrast).
    const Tensor contrasted = ColorJitter(dark, {0, 1}, key);
    const double contrast = 1 - contrasted.IntAt(255 * 3) / 64.0;
    // Where the order shows: brightness cuts white off and contrast does not.
    if (contrast > 0.8 || factor < 1.2) continue;
    const Tensor got = ColorJitter(dark, {1, 1}, key);
    const int64_t as_first =
        Distance(got, AdjustContrast(AdjustBrightness(dark, factor), contrast));
    const int64_t as_last =
        Distance(got, AdjustBrightness(AdjustContrast(dark, contrast), factor));
    if (std::abs(as_first - as_last) < 1000) continue;
    ++decided;
    brightness_first += as_first < as_last ? 1 : 0;
    REQUIRE(std::min(as_first, as_last) < 16 * 16 * 3 * 5);
  }
  CHECK(decided > 200);
  CHECK(IsLikely(brightness_first, decided, 0.5));
}

}  // namespace
}  // namespace sluice
