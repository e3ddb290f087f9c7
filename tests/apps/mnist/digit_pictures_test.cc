// mnist predict on pictures: whatever a digit is written on, however large and
// wherever in the picture, it is the same digit.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "io/images/png.h"
#include "io/sources/digits.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"

#if SLUICE_HAVE_PNG

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using testing::Contains;
using testing::Outcome;
using testing::RunMnist;
using testing::TemporaryFolder;

struct Look {
  const char* name;
  int64_t zoom;         // pixels for each of the digit's
  int64_t left, right;  // margins, in the digit's pixels
  int64_t top, bottom;
  int paper[3], ink[3];  // red, green, blue
};
constexpr Look kLooks[] = {
    {"plain", 1, 0, 0, 0, 0, {0, 0, 0}, {255, 255, 255}},
    {"on paper", 1, 0, 0, 0, 0, {255, 255, 255}, {0, 0, 0}},
    {"large", 7, 0, 0, 0, 0, {255, 255, 255}, {0, 0, 0}},
    {"in a corner", 2, 30, 2, 1, 40, {250, 240, 200}, {20, 20, 120}},
    {"dim", 3, 5, 5, 9, 9, {60, 60, 60}, {140, 140, 140}},
};

std::string Picture(const Tensor& digit, const Look& look) {
  const int64_t height = look.zoom * (look.top + kDigitSize + look.bottom);
  const int64_t width = look.zoom * (look.left + kDigitSize + look.right);
  Tensor picture(DType::kUInt8, {height, width, 3});
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const int64_t v = y / look.zoom - look.top, u = x / look.zoom - look.left;
      const bool inside = v >= 0 && v < kDigitSize && u >= 0 && u < kDigitSize;
      const int shade =
          inside ? static_cast<int>(digit.IntAt(v * kDigitSize + u)) : 0;
      for (int c = 0; c < 3; ++c) {
        picture.data<uint8_t>()[(y * width + x) * 3 + c] = static_cast<uint8_t>(
            look.paper[c] + (look.ink[c] - look.paper[c]) * shade / 255);
      }
    }
  }
  return EncodePng(picture).ValueOrThrow();
}

TEST_CASE("pictures of digits are read, on any paper") {
  TemporaryFolder folder;
  const testing::IdxFolder data(4000, 100);
  const std::string log = folder / "log";
  REQUIRE(RunMnist({"train", "--data-dir", data.path(), "--model", "mlp",
                    "--epochs", "6", "--log-dir", log})
              .code == 0);
  constexpr int64_t kDigits = 40;
  const Digits digits = DrawDigits(kDigits, 3);
  double plain_right = 0;
  for (const Look& look : kLooks) {
    CAPTURE(look.name);
    std::vector<std::string> arguments = {"predict", "--log-dir", log,
                                          "--json"};
    for (int64_t i = 0; i < kDigits; ++i) {
      const std::string path = fmt::format("{}/{}.png", folder.path(), i);
      std::ofstream(path, std::ios::binary) << Picture(
          digits.images.Rows(i, i + 1).Reshaped({kDigitSize, kDigitSize}),
          look);
      arguments.push_back(path);
    }
    const Outcome outcome = RunMnist(arguments);
    CHECK(outcome.code == 0);
    double right = 0;
    int64_t n = 0;
    for (const Json& event : testing::Objects(outcome.out)) {
      if (event["top"][0]["class"] == digits.labels.IntAt(n++)) ++right;
    }
    REQUIRE(n == kDigits);
    MESSAGE(std::string(look.name), ": ", right, " of ", kDigits);
    if (std::string(look.name) == "plain") plain_right = right;
    CHECK(right >= 0.6 * kDigits);
    CHECK(right >= plain_right - 4);
  }
}

TEST_CASE("a picture of nothing is no error, one that is none is") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(
      RunMnist(testing::OnMnist("train", {"--steps", "2", "--log-dir", log}))
          .code == 0);
  for (const int64_t side : {1, 2, 28, 300}) {
    const Tensor empty = Tensor::Full(DType::kUInt8, {side, side, 3}, 200);
    const std::string path = folder / fmt::format("{}.png", side);
    std::ofstream(path, std::ios::binary) << EncodePng(empty).ValueOrThrow();
    const Outcome outcome = RunMnist({"predict", "--log-dir", log, path});
    CHECK(outcome.code == 0);
    CHECK(testing::Lines(outcome.out) == 6);
  }
  std::ofstream(folder / "text.png") << "no picture";
  const Outcome none =
      RunMnist({"predict", "--log-dir", log, folder / "text.png"});
  CHECK(none.code == 1);
  CHECK(Contains(none.out, "cannot be read"));
}

}  // namespace
}  // namespace sluice

#endif
