// Ten crops beside cutting them out of the whole picture, resized, and out of
// the same flipped, as torchvision does.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "engine/status.h"
#include "io/images/image.h"
#include "tests/support/error_text.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using testing::Random;

// Python's round of a half: to the even one.
int64_t HalfOf(int64_t n) {
  return n % 2 == 0 ? n / 2 : (n / 2) + (n / 2) % 2;
}

TEST_CASE("ten crops are the corners and the middle, of the flipped too") {
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    const int64_t rows = random.Between(1, 60), columns = random.Between(1, 60);
    const int64_t resize = random.Between(1, 40);
    const int64_t crop = random.Between(1, resize);
    CAPTURE(rows);
    CAPTURE(columns);
    CAPTURE(resize);
    CAPTURE(crop);
    Tensor image(DType::kUInt8, {rows, columns, random.Chance(3) ? 1 : 3});
    for (uint8_t& value : image.values<uint8_t>()) {
      value = static_cast<uint8_t>(random.Between(0, 255));
    }
    const int64_t height = rows <= columns ? resize : resize * rows / columns;
    const int64_t width = rows <= columns ? resize * columns / rows : resize;
    const Tensor whole = Resize(image, height, width);
    const Tensor crops = ResizeAndTenCrop(image, resize, crop);
    REQUIRE(crops.shape() == Shape{10, crop, crop, image.shape()[2]});
    int64_t next = 0;
    for (const Tensor& from : {whole, FlipHorizontally(whole)}) {
      const int64_t down = height - crop, right = width - crop;
      for (const Tensor& want :
           {Crop(from, 0, 0, crop, crop), Crop(from, 0, right, crop, crop),
            Crop(from, down, 0, crop, crop),
            Crop(from, down, right, crop, crop),
            Crop(from, HalfOf(down), HalfOf(right), crop, crop)}) {
        CAPTURE(next);
        CHECK(crops.Rows(next, next + 1).Reshaped(want.shape()).BitEqual(want));
        ++next;
      }
    }
    CHECK(crops.Rows(kTenCropMiddle, kTenCropMiddle + 1)
              .Reshaped({crop, crop, image.shape()[2]})
              .BitEqual(ResizeAndCrop(image, resize, crop)));
  }
}

TEST_CASE("a line of pixels has ten crops, and none greater than it") {
  Tensor line(DType::kUInt8, {1, 20'000, 3});
  std::fill_n(line.data<uint8_t>(), line.elements(), uint8_t{7});
  const Tensor crops = ResizeAndTenCrop(line, 256, 224);
  CHECK(crops.BitEqual(Tensor::Full(DType::kUInt8, {10, 224, 224, 3}, 7)));
  const std::string error =
      testing::ErrorOf([&] { ResizeAndTenCrop(line, 3, 4); });
  CHECK(testing::Contains(error, "the crop is 4 pixels long"));
}

}  // namespace
}  // namespace sluice
