// `sluice data make --resize` from outside: what is in the shards is decoded
// and compared with the pictures resized here.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "io/files/record.h"
#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/orientation.h"
#include "io/records/tf_example.h"
#include "tests/support/data_program.h"
#include "tests/support/exif_bytes.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_JPEG && SLUICE_HAVE_PROTOBUF

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::CheckDataError;
using testing::DataObject;
using testing::RunData;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::WriteFile;

// A slope in each channel, so that a resized one is the same slope.
Tensor Slope(int64_t height, int64_t width) {
  Tensor image(DType::kUInt8, {height, width, 3});
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      uint8_t* pixel = image.data<uint8_t>() + (y * width + x) * 3;
      pixel[0] = static_cast<uint8_t>(200 * y / height);
      pixel[1] = static_cast<uint8_t>(200 * x / width);
      pixel[2] = 90;
    }
  }
  return image;
}

// The pictures in a folder's shards, by name.
std::map<std::string, std::string> Made(const std::string& out) {
  std::map<std::string, std::string> pictures;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("train-") || name.ends_with(".idx")) continue;
    const std::string bytes = TextOf(entry.path());
    RecordReader reader(bytes);
    for (std::string_view payload; reader.Next(&payload).ValueOrThrow();) {
      const auto example = TfExample::Parse(payload).ValueOrThrow();
      const std::string_view encoded =
          example.Bytes("image/encoded").ValueOrThrow();
      CHECK(example.Bytes("image/format").ValueOrThrow() ==
            (IsJpeg(encoded) ? "JPEG" : "PNG"));
      pictures[std::string(example.Bytes("image/filename").ValueOrThrow())] =
          encoded;
    }
  }
  return pictures;
}

TEST_CASE("larger pictures become smaller, others stay byte for byte") {
  std::mt19937 random(1);
  for (const int64_t side : {1, 20, 37, 64}) {
    const TemporaryFolder folder;
    std::map<std::string, std::string> files;
    for (int i = 0; i < 40; ++i) {
      const auto height = static_cast<int64_t>(1 + random() % 150);
      const auto width =
          static_cast<int64_t>(i % 5 == 0 ? side : 1 + random() % 150);
      const Tensor image = Slope(height, width);
      const bool png = i % 2 == 0;
      const std::string name =
          fmt::format("a/{:02}.{}", i, png ? "png" : "jpg");
      files[name] = png ? EncodePng(image).ValueOrThrow()
                        : EncodeJpeg(image, 95).ValueOrThrow();
      WriteFile(folder / "in/" + name, files[name]);
    }
    const std::string resize = std::to_string(side);
    CHECK(DataObject({"make", folder / "in", folder / "out", "--shards", "3",
                      "--resize", resize})["resize"] == side);
    const auto made = Made(folder / "out");
    REQUIRE(made.size() == files.size());
    int smaller = 0;
    for (const auto& [name, bytes] : files) {
      CAPTURE(name);
      const std::string& got = made.at(name);
      const Tensor image = DecodeImage(bytes, name).ValueOrThrow();
      const int64_t height = image.shape()[0], width = image.shape()[1];
      const int64_t shorter = std::min(height, width);
      if (shorter <= side) {
        CHECK(got == bytes);
        continue;
      }
      ++smaller;
      CHECK(IsJpeg(got));
      const Tensor small = DecodeImage(got, name).ValueOrThrow();
      CHECK(std::min(small.shape()[0], small.shape()[1]) == side);
      CHECK(small.shape()[0] == side * height / shorter);
      CHECK(small.shape()[1] == side * width / shorter);
      const Tensor want = Resize(image, small.shape()[0], small.shape()[1]);
      CHECK(got == EncodeJpeg(want, 95).ValueOrThrow());
      if (side < 20) continue;  // colours of few pixels are mixed
      double difference = 0;
      for (int64_t i = 0; i < want.elements(); ++i) {
        difference += std::abs(want.At(i) - small.At(i));
      }
      CHECK(difference / static_cast<double>(want.elements()) < 3);
    }
    CHECK(smaller > 5);
    CHECK(RunData({"check", folder / "out"}).code == 0);
  }
}

TEST_CASE("Exif's Orientation stays with a picture") {
  const TemporaryFolder folder;
  const std::string jpeg = EncodeJpeg(Slope(60, 90), 95).ValueOrThrow();
  for (int i = 1; i <= 8; ++i) {
    WriteFile(fmt::format("{}/a/{}.jpg", folder / "in", i),
              testing::JpegWithExif(jpeg, testing::ExifData(i)));
  }
  REQUIRE(
      RunData({"make", folder / "in", folder / "out", "--resize", "30"}).code ==
      0);
  for (const auto& [name, bytes] : Made(folder / "out")) {
    CAPTURE(name);
    CHECK(ReadOrientation(bytes).exif() == name[2] - '0');
    const JpegSize size = ReadJpegSize(bytes).ValueOrThrow();
    CHECK(size.height == 30);
    CHECK(size.width == 45);
  }
}

TEST_CASE("shards of another size are refused, and kept with the same") {
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  for (int i = 0; i < 12; ++i) {
    WriteFile(fmt::format("{}/a/{}.png", in, i),
              EncodePng(Slope(20 + i, 30)).ValueOrThrow());
  }
  const auto make = [&](const char* resize) {
    Strings arguments = {"make", in, out, "--shards", "3"};
    if (resize != nullptr)
      arguments.insert(arguments.end(), {"--resize", resize});
    return arguments;
  };
  REQUIRE(RunData(make("16")).code == 0);
  const auto made = Made(out);
  CheckDataError(make("17"), 1,
                 "was made with --resize 16, got with --resize 17; remove '");
  CheckDataError(make(nullptr), 1,
                 "was made with --resize 16, got without --resize;");
  CHECK(DataObject(make("16"))["kept"] == 3);
  fs::remove(out + "/train-00001-of-00003");
  CheckDataError(make("17"), 1, "was made with --resize 16");
  CHECK(DataObject(make("16"))["kept"] == 2);
  CHECK(Made(out) == made);
  // Nothing was written yet: there is nothing to keep.
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("train-")) fs::remove(entry.path());
  }
  CHECK(DataObject(make("17"))["kept"] == 0);
  CheckDataError(make("16"), 1, "was made with --resize 17");
  // And those without.
  fs::remove_all(out);
  CHECK_FALSE(DataObject(make(nullptr)).contains("resize"));
  CheckDataError(make("16"), 1, "was made without --resize, got with");
  CHECK(DataObject(make(nullptr))["kept"] == 3);
}

TEST_CASE("a picture that is damaged behind its beginning is named") {
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out";
  const std::string jpeg = EncodeJpeg(Slope(60, 90), 95).ValueOrThrow();
  WriteFile(in + "/a/good.jpg", jpeg);
  WriteFile(in + "/a/cut.jpg", jpeg.substr(0, jpeg.size() / 2));
  CheckDataError({"make", in, out, "--resize", "30"}, 1, "cut.jpg'");
  CHECK(Made(out).empty());
  WriteFile(in + "/a/cut.jpg", jpeg);
  CHECK(DataObject({"make", in, out, "--resize", "30"})["records"] == 2);
  for (const char* wrong : {"0", "-5", "65501", "x"}) {
    CheckDataError({"make", in, out, "--resize", wrong}, 2, "--resize");
  }
}

}  // namespace
}  // namespace sluice

#endif
