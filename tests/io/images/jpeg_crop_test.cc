// Parts of JPEG images beside the whole decoded, over what libjpeg can write:
// subsampling, baseline and progressive, restart markers, grey, CMYK; cut-off
// and damaged files; real photographs.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"
#include "tests/support/random.h"
#include "tests/support/real_data.h"

#if SLUICE_HAVE_JPEG
#include "tests/support/random_jpeg.h"

namespace sluice {
namespace {

using testing::Encode;
using testing::Form;
using testing::kForms;
using testing::Random;
using testing::RandomPicture;
using testing::RandomWriting;
using testing::Writing;

ImagePart RandomRectangle(Random& random, int64_t height, int64_t width) {
  ImagePart part;
  part.height = random.Chance(4) ? 1 : random.Between(1, height);
  part.width = random.Chance(4) ? 1 : random.Between(1, width);
  part.top = random.Between(0, height - part.height);
  part.left = random.Between(0, width - part.width);
  if (random.Chance(4)) part.top = height - part.height;
  if (random.Chance(4)) part.left = width - part.width;
  return part;
}

Result<Tensor> DecodePart(const std::string& bytes, const ImagePart& part) {
  Tensor image(DType::kUInt8, {part.height, part.width, 3});
  uint8_t* to = image.data<uint8_t>();
  int64_t rows = 0;
  SLUICE_RETURN_IF_ERROR(DecodeJpegRows(bytes, part, [&](const uint8_t* row) {
    REQUIRE((++rows <= part.height));
    to = std::copy_n(row, part.width * 3, to);
  }));
  REQUIRE(rows == part.height);
  return image;
}

Tensor CropTo(const Tensor& image, const ImagePart& part) {
  return Crop(image, part.top, part.left, part.height, part.width);
}

void CheckPart(const std::string& bytes, const Tensor& whole,
               const ImagePart& part) {
  CAPTURE(fmt::format("{} x {} at {}, {}", part.height, part.width, part.top,
                      part.left));
  const Result<Tensor> got = DecodePart(bytes, part);
  REQUIRE(got.ok());
  CHECK(got->BitEqual(CropTo(whole, part)));
}

TEST_CASE("a part of a JPEG has the pixels of the whole") {
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    for (const Form& form : kForms) {
      const int64_t most = random.Chance(8) ? 300 : 97;
      const int64_t height = random.Between(1, most);
      const int64_t width = random.Between(1, most);
      const std::string bytes =
          Encode(RandomPicture(random, height, width, form.channels), form,
                 RandomWriting(random));
      CAPTURE(form.name);
      CAPTURE(i);
      const JpegSize size = *ReadJpegSize(bytes);
      CHECK(size.height == height);
      CHECK(size.width == width);
      const Tensor whole = *DecodeJpeg(bytes);
      CheckPart(bytes, whole, {0, 0, height, width});
      CheckPart(bytes, whole, {height - 1, width - 1, 1, 1});
      for (int j = 0; j < 4; ++j) {
        CheckPart(bytes, whole, RandomRectangle(random, height, width));
      }
    }
  }
}

TEST_CASE("every corner of a part, across blocks and their edges") {
  Random random(2);
  for (const Form& form : kForms) {
    CAPTURE(form.name);
    const std::string bytes =
        Encode(RandomPicture(random, 70, 70, form.channels), form, {});
    const Tensor whole = *DecodeJpeg(bytes);
    for (int64_t at = 0; at < 69; ++at) {
      CheckPart(bytes, whole, {at, 69 - at, 2, 1});
      CheckPart(bytes, whole, {68 - at, at, 1, 2});
      CheckPart(bytes, whole, {at, at, 70 - at, 70 - at});
    }
  }
}

TEST_CASE("a progressive JPEG without its last scans is smoothed as a whole") {
  Random random(3);
  for (int i = 0; i < 60; ++i) {
    const Form& form = kForms[i % 3];
    Writing writing{.progressive = true};
    writing.scans_left_out = static_cast<int>(random.Between(1, 9));
    const std::string bytes =
        Encode(RandomPicture(random, 97, 90, form.channels), form, writing);
    const Tensor whole = *DecodeJpeg(bytes);
    for (int j = 0; j < 3; ++j) {
      CheckPart(bytes, whole, RandomRectangle(random, 97, 90));
    }
  }
}

// 1 + 3 n or 1 + n scans.
TEST_CASE("a progressive JPEG may have 100 scans") {
  Random random(8);
  const Form &colours = kForms[2], &grey = kForms[9];
  const Tensor image = RandomPicture(random, 50, 40, 3);
  const Tensor whole = *DecodeJpeg(Encode(image, colours, {}));
  for (int n = 1; n <= 63; ++n) {
    const std::string bytes = Encode(image, colours, {.scans_each = n});
    const Result<Tensor> decoded = DecodeJpeg(bytes);
    CAPTURE(n);
    if (1 + 3 * n <= 100) {
      REQUIRE(decoded.ok());
      CHECK(decoded->BitEqual(whole));
      CheckPart(bytes, whole, RandomRectangle(random, 50, 40));
      continue;
    }
    REQUIRE(decoded.status().code() == Code::kDataLoss);
    CHECK(decoded.status().message() == "it has more than 100 scans");
    CHECK(DecodeJpegPart(bytes, {1, 1, 2, 2}).status().message() ==
          decoded.status().message());
    CHECK(ReadJpegSize(bytes).ok());  // which looks at none
  }
  const Tensor dark = RandomPicture(random, 50, 40, 1);
  const Result<Tensor> fine =
      DecodeJpeg(Encode(dark, grey, {.scans_each = 63}));
  REQUIRE(fine.ok());
  CHECK(fine->BitEqual(*DecodeJpeg(Encode(dark, grey, {}))));
}

TEST_CASE("a JPEG that was cut off is told, whichever part is wanted") {
  Random random(4);
  for (const Form& form : kForms) {
    for (int i = 0; i < 4; ++i) {
      const std::string bytes =
          Encode(RandomPicture(random, 90, 80, form.channels), form,
                 {.progressive = i % 2 == 1, .thumbnail = i / 2 == 1});
      const ImagePart part = RandomRectangle(random, 40, 80);
      for (size_t n = 0; n < 20; ++n) {
        CAPTURE(form.name);
        CAPTURE(n);
        const std::string cut = bytes.substr(0, bytes.size() * n / 20);
        CHECK(DecodeJpeg(cut).status().code() == Code::kDataLoss);
        CHECK(DecodePart(cut, part).status().code() == Code::kDataLoss);
      }
      // Only the end marker is missing.
      const std::string cut = bytes.substr(0, bytes.size() - 2);
      CHECK(DecodePart(cut, part).ok() == DecodeJpeg(cut).ok());
      // Notes behind the end, few and many.
      const Tensor whole = *DecodeJpeg(bytes);
      CheckPart(bytes + std::string(100, 'x'), whole, part);
      CheckPart(bytes + std::string(100'000, 'x'), whole, part);
    }
  }
}

TEST_CASE("damaged bytes give a part of the same image, or an error") {
  Random random(5);
  int decoded = 0;
  for (int i = 0; i < 600; ++i) {
    const Form& form = kForms[random.Between(0, std::size(kForms) - 1)];
    std::string bytes = Encode(RandomPicture(random, 60, 50, form.channels),
                               form, RandomWriting(random));
    for (int64_t n = random.Between(1, 4); n > 0; --n) {
      const int64_t last = static_cast<int64_t>(bytes.size()) - 1;
      bytes[random.Between(2, last)] ^=
          static_cast<char>(1 << random.Between(0, 7));
    }
    CAPTURE(i);
    CAPTURE(form.name);
    const Result<JpegSize> size = ReadJpegSize(bytes);
    if (!size.ok() || size->height * size->width > 1'000'000) continue;
    const ImagePart part = RandomRectangle(random, size->height, size->width);
    const Result<Tensor> whole = DecodeJpeg(bytes);
    const Result<Tensor> got = DecodePart(bytes, part);
    // What lies below the part may be damaged without its being noticed.
    if (!whole.ok()) continue;
    REQUIRE(got.ok());
    CHECK(got->BitEqual(CropTo(*whole, part)));
    ++decoded;
  }
  CHECK(decoded > 100);
}

// --- Decoded and resized at once ---------------------------------------------

void CheckResized(const std::string& bytes, int64_t resize, int64_t side,
                  uint64_t key) {
  CAPTURE(resize);
  CAPTURE(side);
  CAPTURE(key);
  const Tensor whole = *DecodeImage(bytes, "a");
  CHECK(DecodeRandomResizedCrop(bytes, "a", side, key)
            ->BitEqual(RandomResizedCrop(whole, side, key)));
  CHECK(DecodeResizeAndCrop(bytes, "a", resize, side)
            ->BitEqual(ResizeAndCrop(whole, resize, side)));
}

TEST_CASE("decoding for a crop gives the bytes of decoding, then cropping") {
  Random random(6);
  for (int i = 0; i < 200; ++i) {
    const Form& form = kForms[i % std::size(kForms)];
    const Tensor picture = RandomPicture(random, random.Between(1, 150),
                                         random.Between(1, 150), form.channels);
    const int64_t resize = random.Between(1, 90), side = random.Between(1, 90);
    CheckResized(Encode(picture, form, RandomWriting(random)), resize, side, i);
#if SLUICE_HAVE_PNG
    if (i % 10 == 0) CheckResized(*EncodePng(picture), resize, side, i);
#endif
  }
  const std::string cut =
      Encode(RandomPicture(random, 90, 90, 3), kForms[2], {}).substr(0, 1500);
  for (const Status& status :
       {DecodeRandomResizedCrop(cut, "cut.jpg", 8, 1).status(),
        DecodeResizeAndCrop(cut, "cut.jpg", 8, 8).status(),
        DecodeRandomResizedCrop("x", "cut.jpg", 8, 1).status()}) {
    CHECK(status.code() == Code::kDataLoss);
    CHECK(status.message().find("'cut.jpg'") != std::string::npos);
  }
}

TEST_CASE("real photographs in part") {
  const auto folder = testing::RealData("imagenet-samples");
  if (!folder) return;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (IsImageName(entry.path().filename().string())) {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  REQUIRE(paths.size() > 20);
  for (size_t i = 0; i < paths.size(); ++i) {
    CAPTURE(paths[i]);
    const std::string bytes = *FileSystem::Posix().Read(paths[i]);
    const Tensor whole = *DecodeImage(bytes, paths[i]);
    Random random(static_cast<uint32_t>(i));
    if (!IsJpeg(bytes)) continue;
    CheckPart(bytes, whole,
              RandomRectangle(random, whole.shape()[0], whole.shape()[1]));
    CHECK(DecodeRandomResizedCrop(bytes, paths[i], 224, i)
              ->BitEqual(RandomResizedCrop(whole, 224, i)));
    CHECK(DecodeResizeAndCrop(bytes, paths[i], 256, 224)
              ->BitEqual(ResizeAndCrop(whole, 256, 224)));
  }
}

}  // namespace
}  // namespace sluice
#endif  // SLUICE_HAVE_JPEG
