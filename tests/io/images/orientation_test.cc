// Exif's orientation beside turning whole pictures pixel by pixel, in the words
// of its standard: all eight, of all that libjpeg can write, together with
// decoding in part, resizing and flipping; and what is no such data.
#include "io/images/orientation.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"
#include "tests/support/exif_bytes.h"
#include "tests/support/random.h"
#include "tests/support/real_data.h"
#include "tests/support/temporary_folder.h"

#if SLUICE_HAVE_JPEG
#include "tests/support/random_jpeg.h"
#endif

namespace sluice {
namespace {

using testing::ExifData;
using testing::JpegSegment;
using testing::JpegWithExif;
using testing::PngWithExif;
using testing::Random;

constexpr DecodeOptions kExif = {.exif = true};

// The sides at which the stored first row and first column are to be seen.
struct Sides {
  std::string_view row, column;
};
constexpr Sides kSides[8] = {
    {"top", "left"}, {"top", "right"}, {"bottom", "right"}, {"bottom", "left"},
    {"left", "top"}, {"right", "top"}, {"right", "bottom"}, {"left", "bottom"}};

// Moves a stored pixel by so many pixels away from a side.
struct Place {
  int64_t y = -1, x = -1;
  void Set(std::string_view side, int64_t away, int64_t height, int64_t width) {
    if (side == "top") y = away;
    if (side == "bottom") y = height - 1 - away;
    if (side == "left") x = away;
    if (side == "right") x = width - 1 - away;
  }
};

Tensor TurnedSlowly(const Tensor& stored, int exif) {
  const Sides& sides = kSides[exif - 1];
  const bool stands = sides.row == "top" || sides.row == "bottom";
  const int64_t rows = stored.shape()[0], columns = stored.shape()[1],
                channels = stored.shape()[2];
  const int64_t height = stands ? rows : columns;
  const int64_t width = stands ? columns : rows;
  Tensor image(DType::kUInt8, {height, width, channels});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      Place place;
      place.Set(sides.row, row, height, width);
      place.Set(sides.column, column, height, width);
      for (int64_t c = 0; c < channels; ++c) {
        image.data<uint8_t>()[(place.y * width + place.x) * channels + c] =
            stored.data<uint8_t>()[(row * columns + column) * channels + c];
      }
    }
  }
  return image;
}

Tensor Numbered(int64_t height, int64_t width, int64_t channels) {
  Tensor image(DType::kUInt8, {height, width, channels});
  for (int64_t i = 0; i < image.elements(); ++i) {
    image.data<uint8_t>()[i] = static_cast<uint8_t>(i * 31 % 253);
  }
  return image;
}

TEST_CASE("pictures are turned as the standard says, and so are their parts") {
  Random random(1);
  for (int exif = 1; exif <= 8; ++exif) {
    const Orientation orientation(exif);
    CHECK(orientation.upright() == (exif == 1));
    CHECK(orientation.swaps_sides() == (exif >= 5));
    for (int i = 0; i < 60; ++i) {
      CAPTURE(exif);
      CAPTURE(i);
      const Tensor stored = Numbered(random.Between(1, 9), random.Between(1, 9),
                                     random.Between(1, 4));
      const Tensor upright = orientation.Upright(stored);
      CHECK(upright.BitEqual(TurnedSlowly(stored, exif)));
      const int64_t height = upright.shape()[0], width = upright.shape()[1];
      ImagePart part;
      part.top = random.Between(0, height - 1);
      part.left = random.Between(0, width - 1);
      part.height = random.Between(1, height - part.top);
      part.width = random.Between(1, width - part.left);
      const ImagePart from =
          orientation.Stored(part, stored.shape()[0], stored.shape()[1]);
      const auto cut = [](const Tensor& image, const ImagePart& p) {
        return Crop(image, p.top, p.left, p.height, p.width);
      };
      CHECK(
          orientation.Upright(cut(stored, from)).BitEqual(cut(upright, part)));
    }
  }
  CHECK(Orientation(6).Upright(Tensor(DType::kUInt8, {0, 4, 3})).shape() ==
        Shape{4, 0, 3});
  for (const int none : {0, 9, -1, 65535}) CHECK(Orientation(none).upright());
}

// A picture that no library reads, with this between its begin and its scan.
std::string Jpeg(const std::string& segments) {
  return "\xff\xd8" + segments + JpegSegment('\xda', "scan");
}
std::string Exif(const std::string& data) {
  return JpegSegment('\xe1', std::string("Exif\0\0", 6) + data);
}

// 1 to 8.
int OrientationIn(const std::string& bytes) {
  const Orientation found = ReadOrientation(bytes);
  const Tensor stored = Numbered(2, 3, 1);
  for (int exif = 1; exif <= 8; ++exif) {
    if (found.Upright(stored).BitEqual(TurnedSlowly(stored, exif))) return exif;
  }
  return 0;
}

TEST_CASE("the orientation is found in either order of bytes") {
  const std::string other = JpegSegment('\xe0', "JFIF");
  const std::string notes = JpegSegment('\xe1', "http://ns.adobe.com/xap/1.0/");
  for (int exif = 1; exif <= 8; ++exif) {
    const auto value = static_cast<uint32_t>(exif);
    for (const bool big : {false, true}) {
      CAPTURE(exif);
      CAPTURE(big);
      const std::string data = ExifData(exif, big);
      CHECK(OrientationIn(Jpeg(Exif(data))) == exif);
      std::string among = other + notes;
      among += Exif(data) + other;
      CHECK(OrientationIn(Jpeg(among)) == exif);
      // Bytes that fill up before markers, restarts and what is none.
      CHECK(OrientationIn(Jpeg("\xff\xff" + other + "\xff\xd0junk" +
                               std::string("\xff\0", 2) + Exif(data))) == exif);
      // The first of two counts.
      CHECK(OrientationIn(Jpeg(Exif(data) + Exif(ExifData(3)))) == exif);
      CHECK(OrientationIn(Jpeg(Exif(ExifData({{.value = value}}, big, 77)))) ==
            exif);
      CHECK(OrientationIn(Jpeg(
                Exif(ExifData({{.type = 4, .value = value}}, big)))) == exif);
      CHECK(OrientationIn("\x89PNG\r\n\x1a\n" +
                          testing::PngChunk("eXIf", data)) == exif);
    }
  }
}

TEST_CASE("what is no orientation leaves a picture as it is") {
  const std::string data = ExifData(6);
  const auto tags = [](const testing::ExifTag& tag) {
    return Jpeg(Exif(ExifData({tag}, false)));
  };
  std::string other_order = data;
  other_order[0] = 'M';
  std::string other_magic = data;
  other_magic[2] = 43;
  std::string damaged = "\x89PNG\r\n\x1a\n" + testing::PngChunk("eXIf", data);
  damaged.back() ^= 1;
  for (const std::string& bytes : {std::string(),
                                   std::string("\xff"),
                                   Jpeg(""),
                                   Jpeg(Exif("")),
                                   Jpeg(JpegSegment('\xe1', data)),
                                   Jpeg(JpegSegment('\xe2', data)),
                                   Jpeg("") + Exif(data),
                                   Exif(data),
                                   data,
                                   Jpeg(Exif(other_order)),
                                   Jpeg(Exif(other_magic)),
                                   tags({.value = 0}),
                                   tags({.value = 9}),
                                   tags({.value = 0x106}),
                                   tags({.type = 4, .value = 0x10006}),
                                   tags({.type = 4, .value = 0xffffffff}),
                                   tags({.type = 1, .value = 6}),
                                   tags({.type = 7, .value = 6}),
                                   tags({.count = 2, .value = 6}),
                                   tags({.count = 0, .value = 6}),
                                   tags({.tag = 0x113, .value = 6}),
                                   damaged}) {
    CHECK(OrientationIn(bytes) == 1);
  }
  // A table far away, and one of more tags than there are.
  std::string far = data;
  far.replace(4, 4, "\xff\xff\xff\xff");
  CHECK(OrientationIn(Jpeg(Exif(far))) == 1);
  std::string many = data;
  many.replace(8, 2, "\xff\xff");
  CHECK(OrientationIn(Jpeg(Exif(many))) == 6);
  many[8 + 2 + 12] = 0x11;
  CHECK(OrientationIn(Jpeg(Exif(many))) == 1);
}

TEST_CASE("damaged headers give an orientation, whatever they are") {
  Random random(2);
  int turned = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string data =
        ExifData(static_cast<int>(random.Between(1, 8)), random.Chance(2));
    std::string bytes =
        random.Chance(4) ? "\x89PNG\r\n\x1a\n" + testing::PngChunk("eXIf", data)
                         : Jpeg(JpegSegment('\xe0', "JFIF") + Exif(data));
    for (int64_t n = random.Between(0, 5); n > 0; --n) {
      const auto last = static_cast<int64_t>(bytes.size()) - 1;
      bytes[random.Between(3, last)] =
          static_cast<char>(random.Chance(2) ? 255 : random.Between(0, 255));
    }
    if (random.Chance(2)) {
      bytes.resize(random.Between(0, static_cast<int64_t>(bytes.size())));
    }
    // Of its own memory, so that a sanitizer sees what reads beyond it.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    turned += ReadOrientation({exact.data(), exact.size()}).upright() ? 0 : 1;
  }
  CHECK(turned > 2000);
}

#if SLUICE_HAVE_JPEG
// The bytes with the exif option, beside the whole turned slowly.
void CheckTurned(const std::string& bytes, int exif, Random& random) {
  const Tensor stored = *DecodeImage(bytes, "a");
  const Tensor upright = TurnedSlowly(stored, exif);
  CHECK(DecodeImage(bytes, "a", kExif)->BitEqual(upright));
  const int64_t resize = random.Between(1, 90), side = random.Between(1, 90);
  const auto key = static_cast<uint64_t>(random.Between(0, 1'000'000));
  CAPTURE(resize);
  CAPTURE(side);
  CAPTURE(key);
  CHECK(DecodeRandomResizedCrop(bytes, "a", side, key, kExif)
            ->BitEqual(RandomResizedCrop(upright, side, key)));
  CHECK(DecodeResizeAndCrop(bytes, "a", resize, side, kExif)
            ->BitEqual(ResizeAndCrop(upright, resize, side)));
  // Nothing of it without.
  CHECK(DecodeRandomResizedCrop(bytes, "a", side, key)
            ->BitEqual(RandomResizedCrop(stored, side, key)));
  CHECK(DecodeResizeAndCrop(bytes, "a", resize, side)
            ->BitEqual(ResizeAndCrop(stored, resize, side)));
}

TEST_CASE("all orientations of all JPEGs, whole, in part, resized, flipped") {
  Random random(3);
  for (const testing::Form& form : testing::kForms) {
    for (int exif = 1; exif <= 8; ++exif) {
      CAPTURE(form.name);
      CAPTURE(exif);
      const int64_t most = random.Chance(8) ? 300 : 97;
      const Tensor picture =
          testing::RandomPicture(random, random.Between(1, most),
                                 random.Between(1, most), form.channels);
      const std::string jpeg =
          testing::Encode(picture, form, testing::RandomWriting(random));
      const std::string bytes =
          JpegWithExif(jpeg, ExifData(exif, random.Chance(2)));
      CHECK(DecodeImage(bytes, "a")->BitEqual(*DecodeImage(jpeg, "a")));
      CheckTurned(bytes, exif, random);
    }
  }
}

TEST_CASE("a turned JPEG that was cut off is told, whichever part is wanted") {
  Random random(4);
  for (int exif = 1; exif <= 8; ++exif) {
    const std::string bytes = JpegWithExif(
        testing::Encode(testing::RandomPicture(random, 90, 71, 3),
                        testing::kForms[2], testing::RandomWriting(random)),
        ExifData(exif));
    for (size_t n = 1; n < 20; ++n) {
      CAPTURE(exif);
      CAPTURE(n);
      const std::string cut = bytes.substr(0, bytes.size() * n / 20);
      for (const Status& status :
           {DecodeImage(cut, "cut.jpg", kExif).status(),
            DecodeRandomResizedCrop(cut, "cut.jpg", 8, n, kExif).status(),
            DecodeResizeAndCrop(cut, "cut.jpg", 9, 8, kExif).status()}) {
        CHECK(status.code() == Code::kDataLoss);
        CHECK(status.message().find("'cut.jpg'") != std::string::npos);
      }
    }
  }
}
#endif

#if SLUICE_HAVE_PNG
TEST_CASE("a PNG's orientation, wherever it is written") {
  const Tensor stored = Numbered(21, 34, 3);
  const std::string png = *EncodePng(stored);
  const testing::TemporaryFolder folder;
  for (int exif = 1; exif <= 8; ++exif) {
    for (const bool last : {false, true}) {
      CAPTURE(exif);
      CAPTURE(last);
      const std::string bytes = PngWithExif(png, ExifData(exif, last), last);
      const Tensor upright = TurnedSlowly(stored, exif);
      CHECK(DecodeImage(bytes, "a")->BitEqual(stored));
      CHECK(DecodeImage(bytes, "a", kExif)->BitEqual(upright));
      CHECK(DecodeRandomResizedCrop(bytes, "a", 9, 5, kExif)
                ->BitEqual(RandomResizedCrop(upright, 9, 5)));
      FileSystem& files = FileSystem::Default();
      REQUIRE(files.WriteAtomically(folder / "a.png", bytes).ok());
      CHECK(ReadImage(folder / "a.png")->BitEqual(stored));
      CHECK(ReadImage(folder / "a.png", files, kExif)->BitEqual(upright));
    }
  }
}
#endif

}  // namespace
}  // namespace sluice
