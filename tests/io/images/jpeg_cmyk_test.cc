// JPEG images of four inks: inverted, with Adobe's marker and without.
#include <doctest/doctest.h>

#include "io/images/jpeg.h"
#include "tests/support/exif_bytes.h"
#if SLUICE_HAVE_JPEG
#include "tests/support/random_jpeg.h"

namespace sluice {
namespace {

using testing::Random;

TEST_CASE("the library that decodes says which it is") {
  CHECK(JpegLibrary().starts_with("libjpeg"));
}

TEST_CASE("four inks are inverted, whether Adobe's marker says so or not") {
  const auto form = [](const std::string& name) {
    return *std::find_if(
        std::begin(testing::kForms), std::end(testing::kForms),
        [&](const testing::Form& f) { return f.name == name; });
  };
  for (uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    // Areas of one colour, which are stored to a level or two.
    const int64_t height = 8 * random.Between(1, 4),
                  width = 8 * random.Between(1, 4);
    Tensor inks(DType::kUInt8, {height, width, 4});
    Tensor wanted(DType::kUInt8, {height, width, 3});
    int64_t ink[4];
    for (int64_t& level : ink) level = random.Between(0, 255);
    for (int64_t i = 0; i < height * width; ++i) {
      for (int c = 0; c < 4; ++c) {
        inks.data<uint8_t>()[4 * i + c] = static_cast<uint8_t>(ink[c]);
      }
      for (int c = 0; c < 3; ++c) {
        wanted.data<uint8_t>()[3 * i + c] =
            static_cast<uint8_t>((ink[c] * ink[3] + 127) / 255);
      }
    }
    for (const char* name : {"CMYK", "YCCK"}) {
      CAPTURE(name);
      const std::string marked =
          testing::Encode(inks, form(name), {.quality = 100});
      const Tensor pixels = DecodeJpeg(marked).ValueOrThrow();
      for (int64_t i = 0; i < wanted.elements(); ++i) {
        REQUIRE(std::abs(pixels.IntAt(i) - wanted.IntAt(i)) <= 3);
      }
      if (form(name).stored != JCS_CMYK) continue;  // unmarked it would be one
      const size_t at = marked.find("\xff\xee");
      REQUIRE(at != std::string::npos);
      REQUIRE(marked.substr(at + 4, 5) == "Adobe");
      constexpr size_t kMarker = 16;
      const std::string plain = std::string(marked).erase(at, kMarker);
      CHECK(DecodeJpeg(plain).ValueOrThrow().BitEqual(pixels));
    }
  }
}

}  // namespace
}  // namespace sluice
#endif
