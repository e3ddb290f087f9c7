// The synthetic digits: the same bytes everywhere, balanced, legible.
#include "io/sources/digits.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <array>
#include <cstring>
#include <vector>

#include "engine/threads.h"

namespace sluice {
namespace {

constexpr int kPixels = kDigitSize * kDigitSize;

uint32_t Checksum(const Digits& digits) {
  auto crc = crc32_z(0, static_cast<const Bytef*>(digits.images.raw()),
                     digits.images.bytes());
  crc = crc32_z(crc, static_cast<const Bytef*>(digits.labels.raw()),
                digits.labels.bytes());
  return static_cast<uint32_t>(crc);
}

// Guards against a change of the digits, which would change every published
// accuracy, and against a difference between machines.
TEST_CASE("the same digits on every machine, for any number of threads") {
  SetComputeThreads(1);
  CHECK(Checksum(DrawDigits(3000, 1)) == 1271222918u);
  SetComputeThreads(3);
  CHECK(Checksum(DrawDigits(3000, 1)) == 1271222918u);
  SetComputeThreads(0);
}

TEST_CASE("a digit is a function of seed and index") {
  const Digits digits = DrawDigits(50, 9);
  CHECK(digits.images.shape() == Shape{50, 28, 28, 1});
  uint8_t pixels[kPixels];
  CHECK(DrawDigit(9, 37, pixels) == digits.labels.data<int64_t>()[37]);
  CHECK(std::memcmp(pixels, digits.images.data<uint8_t>() + 37 * kPixels,
                    kPixels) == 0);
  DrawDigit(10, 37, pixels);
  CHECK(std::memcmp(pixels, digits.images.data<uint8_t>() + 37 * kPixels,
                    kPixels) != 0);
  CHECK(DrawDigits(0, 1).labels.elements() == 0);
}

TEST_CASE("labels are balanced; ink lies in the middle") {
  const int n = 5000;
  const Digits digits = DrawDigits(n, 3);
  std::array<int, 10> counts{};
  for (int64_t label : digits.labels.values<int64_t>()) {
    REQUIRE(label >= 0);
    REQUIRE(label <= 9);
    ++counts[label];
  }
  // 500 +- 5 sigma (21).
  for (int count : counts) CHECK(std::abs(count - 500) < 106);
  for (int i = 0; i < n; ++i) {
    const uint8_t* image = digits.images.data<uint8_t>() + i * kPixels;
    double ink = 0;
    double x = 0;
    double y = 0;
    for (int p = 0; p < kPixels; ++p) {
      ink += image[p];
      x += image[p] * (p % kDigitSize);
      const int row = p / kDigitSize;
      y += image[p] * row;
    }
    REQUIRE(ink > 255 * 12);             // something was drawn
    REQUIRE(ink < 255.0 * kPixels / 2);  // and not everything
    REQUIRE(std::abs(x / ink - 13.5) < 6);
    REQUIRE(std::abs(y / ink - 13.5) < 6);
  }
}

// Nearest neighbour among 4000 needs no training: it tells that a class looks
// like itself, and the floor below 100 % that no class is a single template.
TEST_CASE("digits can be told apart, but not trivially") {
  const Digits known = DrawDigits(4000, 1);
  const Digits asked = DrawDigits(300, 2);
  int right = 0;
  for (int i = 0; i < 300; ++i) {
    const uint8_t* a = asked.images.data<uint8_t>() + i * kPixels;
    int best = 0;
    int64_t best_distance = INT64_MAX;
    for (int j = 0; j < 4000; ++j) {
      const uint8_t* b = known.images.data<uint8_t>() + j * kPixels;
      int distance = 0;
      for (int p = 0; p < kPixels; ++p)
        distance += (a[p] - b[p]) * (a[p] - b[p]);
      if (distance < best_distance) {
        best_distance = distance;
        best = j;
      }
    }
    right +=
        known.labels.data<int64_t>()[best] == asked.labels.data<int64_t>()[i];
  }
  MESSAGE("nearest neighbour: " << right / 3.0 << " %");
  CHECK(right > 270);
  CHECK(right < 300);
}

}  // namespace
}  // namespace sluice
