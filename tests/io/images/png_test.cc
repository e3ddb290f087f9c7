// PNG images: every colour type and depth, interlaced or not, filtered and
// written by hand, and what else a file may say of its colours.
#include "io/images/png.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/png_bytes.h"
#include "tests/support/random.h"

#if SLUICE_HAVE_PNG
namespace sluice {
namespace {

using testing::ExifNumber;
using testing::kPngMagic;
using testing::PngChunk;
using testing::Random;
using testing::ZlibCompressed;

// What a PNG may hold (PNG 1.2, section 4.1.1).
constexpr int kGrey = 0, kRgb = 2, kPalette = 3, kGreyAlpha = 4, kRgba = 6;
struct Kind {
  int type, channels;
  std::vector<int> depths;
};
const std::vector<Kind> kKinds = {{kGrey, 1, {1, 2, 4, 8, 16}},
                                  {kRgb, 3, {8, 16}},
                                  {kPalette, 1, {1, 2, 4, 8}},
                                  {kGreyAlpha, 2, {8, 16}},
                                  {kRgba, 4, {8, 16}}};

std::string BigEndian(int64_t value, int bytes) {
  return ExifNumber(static_cast<uint32_t>(value), bytes, true);
}

// An image of numbers as a file has them.
struct Samples {
  int type = kRgb, depth = 8, channels = 3;
  int64_t height = 1, width = 1;
  std::vector<int> values = {};   // height x width x channels
  std::vector<int> palette = {};  // of three bytes each

  int At(int64_t y, int64_t x, int c) const {
    return values[(y * width + x) * channels + c];
  }
};

// The rows of every step-th pixel from (top, left) on, packed and filtered.
std::string Rows(const Samples& image, Random& random, int64_t top,
                 int64_t left, int64_t down, int64_t across) {
  std::string bytes, above;
  const size_t pixel =
      std::max<size_t>(image.channels * image.depth / 8, 1);  // bytes
  for (int64_t y = top; y < image.height && left < image.width; y += down) {
    std::string row;
    int bits = 0, filled = 0;
    for (int64_t x = left; x < image.width; x += across) {
      for (int c = 0; c < image.channels; ++c) {
        const int value = image.At(y, x, c);
        if (image.depth >= 8) {
          row += BigEndian(value, image.depth / 8);
          continue;
        }
        bits = bits << image.depth | value;
        if ((filled += image.depth) < 8) continue;
        row += static_cast<char>(bits);
        bits = filled = 0;
      }
    }
    if (filled > 0) row += static_cast<char>(bits << (8 - filled));
    above.resize(row.size());
    const int64_t filter = random.Between(0, 4);
    bytes += static_cast<char>(filter);
    for (size_t i = 0; i < row.size(); ++i) {
      const int a = i < pixel ? 0 : static_cast<uint8_t>(row[i - pixel]);
      const int b = static_cast<uint8_t>(above[i]);
      const int c = i < pixel ? 0 : static_cast<uint8_t>(above[i - pixel]);
      const int p = a + b - c;
      const int pa = std::abs(p - a), pb = std::abs(p - b);
      const int pc = std::abs(p - c);
      const int paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
      const int predicted[] = {0, a, b, (a + b) / 2, paeth};
      bytes += static_cast<char>(row[i] - predicted[filter]);
    }
    above = row;
  }
  return bytes;
}

std::string File(const Samples& image, Random& random, bool interlaced = false,
                 const std::string& before_palette = "",
                 const std::string& behind_palette = "") {
  std::string rows;
  if (interlaced) {  // Adam7
    constexpr int kPasses[7][4] = {{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4},
                                   {0, 2, 4, 4}, {2, 0, 4, 2}, {0, 1, 2, 2},
                                   {1, 0, 2, 1}};
    for (const auto& [top, left, down, across] : kPasses) {
      rows += Rows(image, random, top, left, down, across);
    }
  } else {
    rows = Rows(image, random, 0, 0, 1, 1);
  }
  std::string palette;
  for (const int byte : image.palette) palette += static_cast<char>(byte);
  if (!palette.empty()) palette = PngChunk("PLTE", palette);
  std::string file =
      std::string(kPngMagic) +
      PngChunk("IHDR", BigEndian(image.width, 4) + BigEndian(image.height, 4) +
                           BigEndian(image.depth, 1) +
                           BigEndian(image.type, 1) + std::string(2, '\0') +
                           BigEndian(interlaced ? 1 : 0, 1)) +
      before_palette + palette + behind_palette;
  const std::string data = ZlibCompressed(rows);
  for (size_t at = 0; at < data.size();) {
    const auto size = static_cast<size_t>(random.Between(1, 4000));
    file += PngChunk("IDAT", data.substr(at, size));
    at += size;
  }
  return file + PngChunk("IEND", "");
}

// Of a sample, as io/images/png.h says.
uint8_t Level(int value, int depth) {
  if (depth == 16) return static_cast<uint8_t>(value >> 8);
  return static_cast<uint8_t>(value * 255 / ((1 << depth) - 1));
}

Tensor Wanted(const Samples& image) {
  Tensor wanted(DType::kUInt8, {image.height, image.width, 3});
  uint8_t* to = wanted.data<uint8_t>();
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      for (int c = 0; c < 3; ++c) {
        *to++ =
            image.type == kPalette
                ? static_cast<uint8_t>(image.palette[3 * image.At(y, x, 0) + c])
                : Level(image.At(y, x, image.channels < 3 ? 0 : c),
                        image.depth);
      }
    }
  }
  return wanted;
}

Samples RandomSamples(Random& random, const Kind& kind, int depth) {
  Samples image = {.type = kind.type,
                   .depth = depth,
                   .channels = kind.channels,
                   .height = random.Between(1, 20),
                   .width = random.Between(1, 20)};
  int64_t most = (1 << depth) - 1;
  if (kind.type == kPalette) {
    const int64_t colours = random.Between(1, most + 1);
    for (int64_t i = 0; i < 3 * colours; ++i) {
      image.palette.push_back(static_cast<int>(random.Between(0, 255)));
    }
    most = colours - 1;
  }
  for (int64_t i = image.height * image.width * kind.channels; i > 0; --i) {
    image.values.push_back(static_cast<int>(random.Between(0, most)));
  }
  return image;
}

// What may stand before a palette, and says what colours are meant.
std::string ColourChunks(Random& random) {
  constexpr std::array kGammas = {100000, 55556, 45455, 45000, 220000, 1, 0};
  std::string chunks;
  if (random.Chance(2)) {
    chunks += PngChunk("gAMA", BigEndian(kGammas[random.Between(0, 6)], 4));
  }
  if (random.Chance(4)) {
    chunks +=
        PngChunk("cHRM", ExifNumber(31270, 4, true) + std::string(28, '\x10'));
  }
  if (random.Chance(4)) {
    chunks += PngChunk("sRGB",
                       std::string(1, static_cast<char>(random.Between(0, 4))));
  } else if (random.Chance(4)) {  // a profile that is none
    chunks += PngChunk("iCCP", std::string("mine\0\0", 6) +
                                   ZlibCompressed(std::string(200, 'p')));
  }
  if (random.Chance(4)) chunks += PngChunk("sBIT", std::string(1, '\1'));
  return chunks;
}

// What may stand behind one: which colour is transparent, and the background.
std::string TransparencyChunks(Random& random, const Samples& image) {
  std::string chunks;
  const auto colour = [&] {
    std::string text;
    for (int c = 0; c < image.channels; ++c) {
      text += BigEndian(image.At(0, 0, c), 2);
    }
    return text;
  };
  if (image.type == kPalette && random.Chance(2)) {
    const auto most = static_cast<int64_t>(image.palette.size() / 3);
    std::string alphas;
    for (int64_t i = random.Between(1, most); i > 0; --i) {
      alphas += static_cast<char>(random.Between(0, 255));
    }
    chunks += PngChunk("tRNS", alphas);
  } else if ((image.type == kGrey || image.type == kRgb) && random.Chance(2)) {
    chunks += PngChunk("tRNS", colour());
  }
  if ((image.type == kGrey || image.type == kRgb) && random.Chance(3)) {
    chunks += PngChunk("bKGD", colour());
  }
  return chunks;
}

TEST_CASE("any PNG has the levels that its numbers say") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    for (const Kind& kind : kKinds) {
      for (const int depth : kind.depths) {
        for (const bool interlaced : {false, true}) {
          CAPTURE(seed);
          CAPTURE(kind.type);
          CAPTURE(depth);
          CAPTURE(interlaced);
          Random random(seed);
          const Samples image = RandomSamples(random, kind, depth);
          const std::string before = ColourChunks(random);
          const std::string behind = TransparencyChunks(random, image);
          const std::string file =
              File(image, random, interlaced, before, behind);
          const auto decoded = DecodePng(file);
          REQUIRE_MESSAGE(decoded.ok(), decoded.status().message());
          REQUIRE(decoded->BitEqual(Wanted(image)));
          // Cut off before its end mark and data's checksums: an error.
          const auto cut =
              static_cast<size_t>(random.Between(0, int64_t(file.size()) - 17));
          CAPTURE(cut);
          REQUIRE(DecodePng(file.substr(0, cut)).status().code() ==
                  Code::kDataLoss);
        }
      }
    }
  }
}

TEST_CASE("sixteen bits are no light, and a gamma changes no level") {
  constexpr std::array<uint8_t, 6> kLevels = {0, 16, 64, 128, 200, 255};
  Random random(1);
  for (const Kind& kind : kKinds) {
    for (const int depth : kind.depths) {
      if (depth < 8 || kind.type == kPalette) continue;
      for (const int gamma : {0, 100000, 55556, 45455}) {
        CAPTURE(kind.type);
        CAPTURE(depth);
        CAPTURE(gamma);
        Samples image = {.type = kind.type,
                         .depth = depth,
                         .channels = kind.channels,
                         .width = 6};
        for (const int level : kLevels) {
          // The lower byte does not matter, not even where it is the larger.
          for (int c = 0; c < kind.channels; ++c) {
            image.values.push_back(depth == 8 ? level : level << 8 | 0xff);
          }
        }
        const Tensor decoded =
            DecodePng(
                File(image, random, false,
                     gamma == 0 ? "" : PngChunk("gAMA", BigEndian(gamma, 4))))
                .ValueOrThrow();
        for (int64_t i = 0; i < decoded.elements(); ++i) {
          CHECK(decoded.IntAt(i) == kLevels[i / 3]);
        }
      }
    }
  }
}

TEST_CASE("what libpng does not forgive is an error, in one line") {
  Random random(2);
  const Samples grey = {.type = kGrey, .channels = 1, .values = {7}};
  const auto error = [&](const Samples& image, const std::string& before = "") {
    const Status status =
        DecodePng(File(image, random, false, before)).status();
    CHECK(status.code() == Code::kDataLoss);
    CHECK(!status.message().empty());
    CHECK(status.message().find('\n') == std::string::npos);
    return std::string(status.message());
  };
  // Sizes are checked before there is memory for them.
  Samples large = grey;
  large.height = 20000;
  large.width = 30000;
  std::string file = File(grey, random);
  const size_t header = kPngMagic.size() + 8 + 13 + 4;
  file = std::string(kPngMagic) +
         PngChunk("IHDR", BigEndian(30000, 4) + BigEndian(20000, 4) +
                              std::string("\x08\0\0\0\0", 5)) +
         file.substr(header);
  CHECK(DecodePng(file).status().message() ==
        "30000 x 20000 pixels are more than 100000000");
  Samples wide = grey;
  wide.depth = 3;
  error(wide);
  error({.type = kPalette, .depth = 8, .channels = 1, .values = {0}});
  // A chunk that must be understood, and is not.
  error(grey, PngChunk("ABCD", "x"));
  // What need not be is passed over, whatever is in it.
  for (const char* name : {"tEXt", "zTXt", "iTXt", "eXIf", "iCCP", "abCd"}) {
    CAPTURE(name);
    CHECK(DecodePng(File(grey, random, false, PngChunk(name, "x"))).ok());
  }
  CHECK(DecodePng("").status().code() == Code::kDataLoss);
  CHECK(DecodePng(kPngMagic).status().code() == Code::kDataLoss);
  CHECK(PngLibrary().starts_with("libpng 1."));
}

}  // namespace
}  // namespace sluice
#endif
