// EncodeJpeg: what it writes is decoded again and compared with the pixels.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "engine/tensor.h"
#include "io/images/jpeg.h"
#include "io/images/orientation.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;

// Waves, as photographs are rather than noise.
Tensor Picture(int64_t height, int64_t width, std::mt19937& random) {
  Tensor image(DType::kUInt8, {height, width, 3});
  const double fy = 1 + random() % 40, fx = 1 + random() % 40;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const double wave = std::sin(static_cast<double>(y) / fy) +
                          std::cos(static_cast<double>(x) / fx);
      for (int64_t c = 0; c < 3; ++c) {
        image.data<uint8_t>()[(y * width + x) * 3 + c] =
            static_cast<uint8_t>(127.5 + 30 * wave * (1 + 0.3 * c));
      }
    }
  }
  return image;
}

double MeanDifference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    sum += std::abs(a.At(i) - b.At(i));
  }
  return sum / static_cast<double>(a.elements());
}

#if SLUICE_HAVE_JPEG
TEST_CASE("pixels come back about as they were, of any size") {
  std::mt19937 random(1);
  const int64_t sides[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 200};
  for (const int64_t height : sides) {
    for (const int64_t width : sides) {
      const Tensor image = Picture(height, width, random);
      const std::string file = EncodeJpeg(image, 95).ValueOrThrow();
      CAPTURE(height);
      CAPTURE(width);
      CHECK(IsJpeg(file));
      const JpegSize size = ReadJpegSize(file).ValueOrThrow();
      CHECK(size.height == height);
      CHECK(size.width == width);
      CHECK(MeanDifference(DecodeJpeg(file).ValueOrThrow(), image) < 4);
    }
  }
}

TEST_CASE("a lower quality makes a smaller file that differs more") {
  std::mt19937 random(2);
  const Tensor image = Picture(123, 321, random);
  size_t size = 0;
  double difference = 1000;
  for (const int quality : {1, 20, 50, 75, 95, 100}) {
    CAPTURE(quality);
    const std::string file = EncodeJpeg(image, quality).ValueOrThrow();
    CHECK(file == EncodeJpeg(image, quality).ValueOrThrow());
    const double now = MeanDifference(DecodeJpeg(file).ValueOrThrow(), image);
    CHECK(file.size() > size);
    CHECK(now < difference + 1e-9);
    size = file.size();
    difference = now;
  }
  CHECK(difference < 1.5);
}

TEST_CASE("colours are not mixed up") {
  for (int64_t c = 0; c < 3; ++c) {
    Tensor image = Tensor::Full(DType::kUInt8, {20, 31, 3}, 10);
    for (int64_t i = c; i < image.elements(); i += 3) {
      image.data<uint8_t>()[i] = 240;
    }
    const Tensor back =
        DecodeJpeg(EncodeJpeg(image, 95).ValueOrThrow()).ValueOrThrow();
    for (int64_t i = 0; i < back.elements(); ++i) {
      CHECK(std::abs(back.At(i) - image.At(i)) <= 3);
    }
  }
}

TEST_CASE("an orientation goes with the pixels") {
  std::mt19937 random(3);
  const Tensor image = Picture(30, 41, random);
  const std::string plain = EncodeJpeg(image, 90).ValueOrThrow();
  CHECK(EncodeJpeg(image, 90, 1).ValueOrThrow() == plain);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CHECK(Orientation(orientation).exif() == orientation);
    const std::string file = EncodeJpeg(image, 90, orientation).ValueOrThrow();
    CHECK(ReadOrientation(file).exif() == orientation);
    CHECK(MeanDifference(DecodeJpeg(file).ValueOrThrow(),
                         DecodeJpeg(plain).ValueOrThrow()) == 0);
  }
}

TEST_CASE("what is no picture is refused") {
  const auto error = [](const Tensor& image, int quality) {
    const Status status = EncodeJpeg(image, quality).status();
    CHECK(status.code() == Code::kInvalidArgument);
    return status.message();
  };
  const Tensor good = Tensor::Full(DType::kUInt8, {2, 3, 3}, 0);
  CHECK(Contains(error(Tensor(DType::kFloat32, {2, 3, 3}), 95),
                 "got float32[2,3,3]"));
  CHECK(Contains(error(Tensor(DType::kUInt8, {2, 3, 4}), 95), "[2,3,4]"));
  CHECK(Contains(error(Tensor(DType::kUInt8, {6, 3}), 95), "[6,3]"));
  CHECK(Contains(error(Tensor(DType::kUInt8, {0, 3, 3}), 95), "[0,3,3]"));
  CHECK(Contains(error(Tensor(DType::kUInt8, {1, 65'501, 3}), 95), "65500"));
  CHECK(EncodeJpeg(Tensor::Full(DType::kUInt8, {1, 65'500, 3}, 7), 95).ok());
  CHECK(Contains(error(good, 0), "got 0"));
  CHECK(Contains(error(good, 101), "got 101"));
}
#else
TEST_CASE("without libjpeg that is said") {
  const auto file = EncodeJpeg(Tensor::Full(DType::kUInt8, {2, 3, 3}, 0), 95);
  CHECK(file.status().code() == Code::kUnimplemented);
}
#endif

}  // namespace
}  // namespace sluice
