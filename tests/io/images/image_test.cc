// Images: decoding and resizing beside Pillow and torchvision
// (tests/golden/images.safetensors), bad files, augmentation, CIFAR-10.
#include "io/images/image.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "io/checkpoints/safetensors.h"
#include "io/images/png.h"
#include "io/sources/datasets.h"
#include "tests/places.h"
#include "tests/support/real_data.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::TemporaryFolder;

const std::map<std::string, Tensor>& Golden() {
  static const std::map<std::string, Tensor> kTensors = [] {
    std::map<std::string, Tensor> tensors;
    for (NamedTensor& t :
         ReadSafetensors(SLUICE_SOURCE_DIR "/tests/golden/images.safetensors")
             .ValueOrThrow()
             .tensors) {
      tensors[t.name] = std::move(t.tensor);
    }
    return tensors;
  }();
  return kTensors;
}

// The largest difference of two images' bytes.
int64_t Distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  int64_t worst = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    worst = std::max(worst, std::abs(a.IntAt(i) - b.IntAt(i)));
  }
  return worst;
}

Tensor Picture() {
  return Golden().at("png/pixels");
}

int64_t At(const Tensor& image, int64_t y, int64_t x, int64_t c = 0) {
  return image.IntAt((y * image.shape()[1] + x) * image.shape()[2] + c);
}

#if SLUICE_HAVE_JPEG && SLUICE_HAVE_PNG
std::string BytesOf(const std::string& name) {
  const Tensor& file = Golden().at(name + "/file");
  return {reinterpret_cast<const char*>(file.data<uint8_t>()), file.bytes()};
}

TEST_CASE("images are decoded as Pillow does") {
  int count = 0;
  for (const auto& [key, file] : Golden()) {
    if (!key.ends_with("/file")) continue;
    const std::string name = key.substr(0, key.size() - 5);
    CAPTURE(name);
    const auto image = DecodeImage(BytesOf(name), name);
    REQUIRE(image.ok());
    // Rounding, of colours that are products.
    const int64_t tolerance = name == "jpeg_cmyk" ? 1 : 0;
    CHECK(Distance(*image, Golden().at(name + "/pixels")) <= tolerance);
    ++count;
  }
  CHECK(count == 8);
}

TEST_CASE("damaged images are told, at any length") {
  for (const char* name : {"jpeg", "jpeg_progressive", "png"}) {
    const std::string bytes = BytesOf(name);
    for (size_t length = 0; length + 16 < bytes.size(); length += 7) {
      CAPTURE(name);
      CAPTURE(length);
      const auto image = DecodeImage(bytes.substr(0, length), "cut.jpg");
      CHECK(image.status().code() == Code::kDataLoss);
      CHECK(image.status().message().find("'cut.jpg'") != std::string::npos);
    }
    // Any byte changed: an image or an error, nothing worse.
    for (size_t at = 0; at < bytes.size(); at += 3) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(~changed[at]);
      (void)DecodeImage(changed, "changed.jpg");
    }
  }
  // A header that claims 65,000 x 65,000 pixels.
  std::string huge = BytesOf("jpeg");
  const size_t frame = huge.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  for (size_t i = 5; i < 9; ++i) huge[frame + i] = '\xfd';
  CHECK(DecodeImage(huge, "huge.jpg").status().message().find("pixels") !=
        std::string::npos);
}
#endif

TEST_CASE("what is no image is told") {
  TemporaryFolder folder;
  std::ofstream(folder / "a.jpg") << "hello";
  const Status status = ReadImage(folder / "a.jpg").status();
  CHECK(status.code() == Code::kDataLoss);
  CHECK(status.message().find("a.jpg': this is no image") != std::string::npos);
  CHECK(ReadImage(folder / "b.jpg").status().code() == Code::kNotFound);
  CHECK(IsImageName("x.JPEG"));
  CHECK(IsImageName("x.Png"));
  CHECK_FALSE(IsImageName("._x.jpg"));
  CHECK(IsImageName("_.jpg"));
  CHECK(IsImageName(".x.jpg"));
  CHECK_FALSE(IsImageName("x.txt"));
}

TEST_CASE("resizing gives Pillow's bytes") {
  int count = 0;
  for (const auto& [key, want] : Golden()) {
    if (!key.starts_with("resized/")) continue;
    CAPTURE(key);
    const Tensor got = Resize(Picture(), want.shape()[0], want.shape()[1]);
    CHECK(Distance(got, want) == 0);
    ++count;
  }
  CHECK(count == 5);
  for (const char* name : {"wide", "tall"}) {
    const std::string key = fmt::format("fitted/{}", name);
    CHECK(Distance(ResizeAndCrop(Golden().at(key + "/from"), 32, 28),
                   Golden().at(key)) == 0);
  }
}

TEST_CASE("cropping fills with zeros what is outside, flipping turns round") {
  const Tensor image = Picture();
  const Tensor part = Crop(image, -2, 50, 39, 4);
  CHECK(part.shape() == Shape{39, 4, 3});
  for (int64_t y = 0; y < 39; ++y) {
    for (int64_t x = 0; x < 4; ++x) {
      const bool inside = y >= 2 && x < 2;
      CHECK(At(part, y, x, 1) == (inside ? At(image, y - 2, 50 + x, 1) : 0));
    }
  }
  CHECK(Distance(Crop(image, 100, 100, 3, 3),
                 Tensor::Full(DType::kUInt8, {3, 3, 3}, 0)) == 0);
  const Tensor flipped = FlipHorizontally(image);
  CHECK(At(flipped, 5, 0, 2) == At(image, 5, 51, 2));
  CHECK(FlipHorizontally(flipped).BitEqual(image));
}

TEST_CASE("augmentation is a function of its key and reaches every place") {
  // Each pixel tells its place.
  Tensor image(DType::kUInt8, {8, 8, 3});
  for (int64_t i = 0; i < image.elements(); ++i) {
    image.data<uint8_t>()[i] = static_cast<uint8_t>(1 + i / 3);
  }
  std::set<std::string> seen;
  for (uint64_t key = 0; key < 2000; ++key) {
    const Tensor part = RandomPadCrop(image, 2, key);
    CHECK(part.shape() == image.shape());
    CHECK(part.BitEqual(RandomPadCrop(image, 2, key)));
    seen.insert(
        {reinterpret_cast<const char*>(part.data<uint8_t>()), part.bytes()});
  }
  CHECK(seen.size() == 5 * 5 * 2);

  const Tensor photo = Picture();
  std::set<std::string> crops;
  for (uint64_t key = 0; key < 50; ++key) {
    const Tensor part = RandomResizedCrop(photo, 16, key);
    CHECK(part.shape() == Shape{16, 16, 3});
    CHECK(part.BitEqual(RandomResizedCrop(photo, 16, key)));
    crops.insert(
        {reinterpret_cast<const char*>(part.data<uint8_t>()), part.bytes()});
  }
  CHECK(crops.size() > 45);
  // Of a line no part has an allowed ratio: the nearest is taken.
  const Tensor line = Tensor::Full(DType::kUInt8, {1, 500, 3}, 9);
  CHECK(At(RandomResizedCrop(line, 4, 1), 3, 3) == 9);
}

TEST_CASE("a random resized crop is its part, resized, flipped or not") {
  const Tensor photo = Picture();
  const int64_t rows = photo.shape()[0], columns = photo.shape()[1];
  const auto area = static_cast<double>(rows * columns);
  int flips = 0;
  for (uint64_t key = 0; key < 400; ++key) {
    const RandomPart random = DrawRandomPart(rows, columns, key);
    const auto [top, left, height, width] = random.part;
    Tensor want = Resize(Crop(photo, top, left, height, width), 16, 16);
    if (random.flip) want = FlipHorizontally(want);
    CHECK(RandomResizedCrop(photo, 16, key).BitEqual(want));
    flips += random.flip ? 1 : 0;
    CHECK(top >= 0);
    CHECK(left >= 0);
    CHECK(top + height <= rows);
    CHECK(left + width <= columns);
    // But for the sides' rounding.
    const auto h = static_cast<double>(height), w = static_cast<double>(width);
    CHECK((h + 0.5) * (w + 0.5) >= 0.08 * area);
    CHECK((w - 0.5) / (h + 0.5) <= 4.0 / 3);
    CHECK((h - 0.5) / (w + 0.5) <= 4.0 / 3);
  }
  CHECK(flips > 150);
  CHECK(flips < 250);
}

TEST_CASE("standardising is (x / 255 - mean) / deviation") {
  Example example = {{"image", Picture()}};
  Standardize("image", {0.5, 0.25, 0.125}, {0.5, 0.25, 2}).apply(example);
  const Tensor& got = example["image"];
  CHECK(got.dtype() == DType::kFloat32);
  for (int64_t i : {0, 1, 2, 300, 301, 302}) {
    const double mean[] = {0.5, 0.25, 0.125}, deviation[] = {0.5, 0.25, 2};
    CHECK(got.At(i) == doctest::Approx((Picture().At(i) / 255 - mean[i % 3]) /
                                       deviation[i % 3])
                           .epsilon(1e-5));
  }
  CHECK_THROWS_AS(Standardize("image", {0, 0, 0}, {1, 1, 1}).apply(example),
                  Error);
}

// --- CIFAR-10 ----------------------------------------------------------------

// A file of `labels.size()` records, image i having the bytes i, i+1, ...
void WriteCifar(const std::string& path, const std::string& labels) {
  std::ofstream file(path, std::ios::binary);
  for (size_t n = 0; n < labels.size(); ++n) {
    file << labels[n];
    for (int i = 0; i < 3072; ++i) file << static_cast<char>(n * 7 + i);
  }
}

TEST_CASE("CIFAR-10 is read from its binary files") {
  TemporaryFolder folder;
  for (int i = 1; i <= 5; ++i) {
    WriteCifar(folder / fmt::format("data_batch_{}.bin", i),
               {static_cast<char>(i), '\x09', '\x00'});
  }
  WriteCifar(folder / "test_batch.bin", "\x04");
  const Dataset training = datasets::Cifar10(folder.path(), Mode::kTrain);
  CHECK(training.cardinality() == 15);
  Iterator examples = training.MakeIterator();
  Example example;
  for (int i = 0; i < 5; ++i) {  // the second of the second file
    REQUIRE(examples.Next(&example).ValueOrThrow());
  }
  CHECK(example["label"].IntAt(0) == 9);
  CHECK(example["image"].shape() == Shape{32, 32, 3});
  // Row 3, column 4, green: byte 1024 + 100 of the record's image.
  CHECK(At(example["image"], 3, 4, 1) == (7 + 1024 + 100) % 256);
  const Dataset test = datasets::Cifar10(folder.path(), Mode::kEval);
  CHECK(test.First()["label"].IntAt(0) == 4);
}

std::string CifarError(const std::string& folder) {
  try {
    datasets::Cifar10(folder, Mode::kEval);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("bad CIFAR-10 files are told") {
  TemporaryFolder folder;
  const auto contains = [&](const char* part) {
    const std::string message = CifarError(folder.path());
    CAPTURE(message);
    return message.find(part) != std::string::npos;
  };
  CHECK(contains("no CIFAR-10 in"));
  std::ofstream(folder / "test_batch.bin.xz") << "x";
  CHECK(contains("is compressed; unpack it: xz -dc "));
  WriteCifar(folder / "test_batch.bin", std::string("\x03\x0a", 2));
  CHECK(contains("label 10 of image 1 is not in 0..9"));
  WriteCifar(folder / "test_batch.bin", "\x03");
  std::filesystem::resize_file(folder / "test_batch.bin", 3072);
  CHECK(contains("3072 bytes are no whole number of CIFAR-10 records"));
  std::filesystem::resize_file(folder / "test_batch.bin", 0);
  CHECK(contains("0 bytes"));
}

TEST_CASE("the real CIFAR-10") {
  const auto packed = testing::RealData("cifar10/test_batch.bin.xz");
  if (!packed) return;
  TemporaryFolder folder;
  const std::string command =
      fmt::format("xz -dc '{}' > '{}'", *packed, folder / "test_batch.bin");
  REQUIRE(std::system(command.c_str()) == 0);
  const Dataset test = datasets::Cifar10(folder.path(), Mode::kEval);
  REQUIRE(test.cardinality() == 10'000);
  Iterator batches = test.Batch(10'000).MakeIterator();
  Example all;
  REQUIRE(batches.Next(&all).ValueOrThrow());
  std::array<int64_t, 10> counts{};
  for (int64_t label : all["label"].values<int64_t>()) ++counts[label];
  for (int64_t count : counts) CHECK(count == 1000);
  // The means of the training set are 0.4914, 0.4822 and 0.4465.
  std::array<double, 3> sums{};
  const std::span<const uint8_t> bytes =
      std::as_const(all["image"]).values<uint8_t>();
  for (size_t i = 0; i < bytes.size(); ++i) sums[i % 3] += bytes[i];
  const double count = 255.0 * static_cast<double>(bytes.size()) / 3;
  CHECK(sums[0] / count == doctest::Approx(0.4914).epsilon(0.02));
  CHECK(sums[1] / count == doctest::Approx(0.4822).epsilon(0.02));
  CHECK(sums[2] / count == doctest::Approx(0.4465).epsilon(0.02));
}

}  // namespace
}  // namespace sluice
