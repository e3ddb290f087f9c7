// Augmentations by name: their text, well-formed, wrong and damaged; that parts
// neither change their image nor each other.
#include "io/images/augment.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "io/counter_random.h"
#include "tests/support/error_text.h"
#include "tests/support/plain_pictures.h"

namespace sluice {
namespace {

using testing::Picture;
using testing::Plain;

using testing::Contains;
using testing::ErrorOf;

constexpr std::array<double, 3> kMean = {0.485, 0.456, 0.406};
constexpr std::array<uint8_t, 3> kMeanBytes = {124, 116, 104};

Augmentation Parsed(std::string_view text) {
  return Augmentation::Parse(text, kMean).ValueOrThrow();
}

std::string Canonical(std::string_view text) {
  return Parsed(text).ToString();
}

std::string ParseError(std::string_view text) {
  const Status status = Augmentation::Parse(text, kMean).status();
  CHECK(status.code() == Code::kInvalidArgument);
  return status.message();
}

TEST_CASE("texts and what they stand for") {
  CHECK(Canonical("") == "");
  CHECK(Canonical("  ") == "");
  CHECK(Canonical("randaugment") == "randaugment(2,9)");
  CHECK(Canonical("randaugment()") == "randaugment(2,9)");
  CHECK(Canonical("randaugment( 3 )") == "randaugment(3,9)");
  CHECK(Canonical(" randaugment ( 1 , 30 ) ") == "randaugment(1,30)");
  CHECK(Canonical("erasing") == "erasing(0.5)");
  CHECK(Canonical("erasing(.25)") == "erasing(0.25)");
  CHECK(Canonical("erasing(-0)") == "erasing(0)");
  CHECK(Canonical("erasing(1e-1)") == "erasing(0.1)");
  CHECK(Canonical("jitter(0.4)") == "jitter(0.4,0,0,0)");
  CHECK(Canonical("randaugment(2,9),erasing(0.25),jitter(0.4,0.4,0.4,0.1)") ==
        "randaugment(2,9),erasing(0.25),jitter(0.4,0.4,0.4,0.1)");
  CHECK(Canonical("erasing , erasing(1)") == "erasing(0.5),erasing(1)");
  CHECK(Canonical("mixup") == "mixup(1)");
  CHECK(Canonical("cutmix( 5e-324 ),mixup(1e308)") ==
        "cutmix(5e-324),mixup(1e+308)");
  CHECK(Augmentation().ToString() == "");
}

TEST_CASE("texts of how pictures are cut, in place of what is usual") {
  const auto parsed = [](std::string_view text, const RandomCut& usual = {}) {
    return Augmentation::Parse(text, kMean, usual).ValueOrThrow();
  };
  const auto describe = [](const Augmentation& augmentation) {
    const auto& [pad, crop] = augmentation.cut();
    return pad ? fmt::format("pad {}, flip {}", *pad, crop.flip)
               : fmt::format("crop {} to {}, {} to {}, flip {}", crop.scale_min,
                             crop.scale_max, crop.ratio_min, crop.ratio_max,
                             crop.flip);
  };
  const std::string usual =
      "crop 0.08 to 1, 0.75 to 1.3333333333333333, flip 0.5";
  const RandomCut padded = {.pad = 4, .crop = {.flip = 0.25}};
  struct Case {
    const char *text, *canonical;
    std::string cut, in_place_of_padding;
  };
  for (const auto& [text, canonical, cut, in_place_of_padding] : {
           Case{"", "", usual, "pad 4, flip 0.25"},
           Case{"erasing", "erasing(0.5)", usual, "pad 4, flip 0.25"},
           Case{"crop", "crop(0.08,1,0.75,1.3333333333333333)", usual,
                "crop 0.08 to 1, 0.75 to 1.3333333333333333, flip 0.25"},
           Case{"crop(.35, 0.9)", "crop(0.35,0.9,0.75,1.3333333333333333)",
                "crop 0.35 to 0.9, 0.75 to 1.3333333333333333, flip 0.5",
                "crop 0.35 to 0.9, 0.75 to 1.3333333333333333, flip 0.25"},
           Case{"crop(1,1,1,1),flip(0)", "crop(1,1,1,1),flip(0)",
                "crop 1 to 1, 1 to 1, flip 0", "crop 1 to 1, 1 to 1, flip 0"},
           Case{"flip", "flip(0.5)", usual, "pad 4, flip 0.5"},
           Case{"flip(1),crop(0.5)",
                "flip(1),crop(0.5,1,0.75,1.3333333333333333)",
                "crop 0.5 to 1, 0.75 to 1.3333333333333333, flip 1",
                "crop 0.5 to 1, 0.75 to 1.3333333333333333, flip 1"},
           Case{"pad-crop", "pad-crop(4)", "pad 4, flip 0.5",
                "pad 4, flip 0.25"},
           // Batches are mixed last, wherever that is written.
           Case{"mixup,pad-crop(0) , flip(0.1),erasing",
                "mixup(1),pad-crop(0),flip(0.1),erasing(0.5)",
                "pad 0, flip 0.1", "pad 0, flip 0.1"},
       }) {
    CAPTURE(text);
    CHECK(parsed(text).ToString() == canonical);
    CHECK(parsed(parsed(text).ToString()).ToString() == canonical);
    CHECK(describe(parsed(text)) == cut);
    CHECK(describe(parsed(text, padded)) == in_place_of_padding);
  }
  // Cutting is the caller's, and changes nothing that others draw.
  const Tensor image = Picture(30, 20);
  for (uint64_t key = 0; key < 50; ++key) {
    const auto apply = [&](std::string_view text) {
      return parsed(text).Apply(image, key);
    };
    REQUIRE(apply("crop(0.5),flip(1)").BitEqual(image));
    REQUIRE(apply("pad-crop(9),erasing").BitEqual(apply("erasing")));
  }
}

TEST_CASE("errors in how pictures are cut") {
  const auto error = [](std::string_view text) {
    const Status status =
        Augmentation::Parse(text, kMean, RandomCut()).status();
    CHECK(status.code() == Code::kInvalidArgument);
    return status.message();
  };
  struct Case {
    std::string_view text;
    std::string said;
  };
  for (const auto& [text, said] : {
           Case{"crop(0)",
                "scale_min of crop(scale_min,scale_max,ratio_min,ratio_max) is "
                "'0', wanted a number greater than 0 and at most 1"},
           Case{"crop(0.1,1.1)", "scale_max of"},
           Case{"crop(0.5,0.4)", "is 0.5, which is greater than scale_max 0.4"},
           Case{"crop(0.1,1,2)",
                "ratio_min of crop(scale_min,scale_max,ratio_min,ratio_max) is "
                "2, which is greater than ratio_max 1.3333333333333333"},
           Case{"crop(0.1,1,1,1,1)", "got 5 arguments, wanted 0 to 4"},
           Case{"crop(0.1,1,0.001)", "wanted a number from 0.01 to 100"},
           Case{"crop(0.1,1,nan)", "is 'nan'"},
           Case{"pad-crop(32)", "wanted a whole number from 0 to 31"},
           Case{"pad-crop(1.5)", "wanted a whole number from 0 to 31"},
           Case{"pad-crop(-1)", "wanted a whole number from 0 to 31"},
           Case{"flip(2)", "p of flip(p) is '2', wanted a number from 0 to 1"},
           Case{"pad-corp", "did you mean 'pad-crop'?"},
           Case{"crop,pad-crop", "crop and pad-crop exclude each other"},
           Case{"pad-crop,flip,crop", "pad-crop and crop exclude each other"},
           Case{"crop,crop", "crop is there twice"},
           Case{"flip,crop,flip", "flip is there twice"},
           Case{"erasing,flip",
                "flip stands behind erasing, but pictures are cut and flipped "
                "before all else: write it first"},
           Case{"crop,mixup,randaugment,flip",
                "flip stands behind randaugment, but"},
       }) {
    CAPTURE(text);
    CHECK(error(text).starts_with(fmt::format("augmentation '{}': ", text)));
    CHECK_MESSAGE(Contains(error(text), said), error(text));
  }
  for (const char* text : {"crop", "pad-crop(4)", "erasing,flip"}) {
    CHECK(Contains(ParseError(text), " is not possible, as nothing is cut"));
  }
}

TEST_CASE("errors name the part, what was got and what is possible") {
  struct Case {
    std::string_view text, said;
  };
  for (const auto& [text, said] : {
           Case{"randaugmnet(2,9)",
                "there is no 'randaugmnet'; did you mean 'randaugment'?"},
           Case{"cutout",
                "wanted some of randaugment(num_ops,magnitude), "
                "erasing(p), jitter("},
           Case{"erasing(0.1),", "there is no ''"},
           Case{",erasing", "there is no ''"},
           Case{"(2)", "there is no ''"},
           Case{"erasing(1.5)",
                "p of erasing(p) is '1.5', wanted a number "
                "from 0 to 1"},
           Case{"erasing(-0.1)", "is '-0.1'"},
           Case{"erasing(nan)", "is 'nan'"},
           Case{"erasing(1e999)", "is '1e999'"},
           Case{"erasing(0.1 0.2)", "is '0.1 0.2'"},
           Case{"erasing(0x1)", "is '0x1'"},
           Case{"randaugment(2,31)",
                "magnitude of randaugment(num_ops,magnitude) is '31', wanted a "
                "whole number from 0 to 30"},
           Case{"randaugment(0)", "wanted a whole number from 1 to 14"},
           Case{"randaugment(2.5)", "num_ops of"},
           Case{"randaugment(,9)", "is ''"},
           Case{"jitter(0.4,0.4,0.4,0.6)",
                "hue of jitter(brightness,contrast,saturation,hue) is '0.6', "
                "wanted a number from 0 to 0.5"},
           Case{"mixup(0)",
                "alpha of mixup(alpha) is '0', wanted a finite number greater "
                "than "
                "0"},
           Case{"cutmix(-0)", "alpha of cutmix(alpha) is '-0', wanted"},
           Case{"cutmix(-1)", "is '-1'"},
           Case{"cutmix(nan)", "is 'nan'"},
           Case{"mixup(inf)", "is 'inf'"},
           Case{"mixup(1e999)", "is '1e999'"},
           Case{"mixup(1,1)", "mixup(alpha) got 2 arguments, wanted 0 to 1"},
           Case{"mixpu", "did you mean 'mixup'?"},
           Case{"jitter", "got 0 arguments, wanted 1 to 4"},
           Case{"erasing(0.1,2)", "erasing(p) got 2 arguments, wanted 0 to 1"},
           Case{"erasing(0.1", "wanted ',' or ')', got the end"},
           Case{"erasing(0.1(", "wanted ',' or ')', got '('"},
           Case{"erasing(0.1)jitter(1)",
                "wanted ',' or the end, got 'jitter(1)'"},
       }) {
    CAPTURE(text);
    const std::string error = ParseError(text);
    CHECK(error.starts_with(fmt::format("augmentation '{}': ", text)));
    CHECK(Contains(error, std::string(said)));
  }
}

struct RandomText {
  std::string text, canonical;
};

// With blanks, with arguments left out and in several spellings.
RandomText DrawText(CounterRandom& random) {
  RandomText drawn;
  std::string& text = drawn.text;
  const auto blanks = [&] { return std::string(random.Below(3), ' '); };
  const auto add_argument = [&](double value) {
    text += blanks() + (random.Below(2) == 0 ? fmt::format("{}", value)
                                             : fmt::format("{:.17e}", value));
  };
  for (uint32_t left = 1 + random.Below(4); left > 0; --left) {
    const uint32_t kind = random.Below(3);
    std::array<double, 4> values = {random.Next() * 0x1p-32, 0, 0, 0};
    const std::string_view name =
        std::array{"randaugment", "erasing", "jitter"}[kind];
    const uint32_t most = std::array{2U, 1U, 4U}[kind];
    if (kind == 0) values = {1.0 + random.Below(14), 9, 0, 0};
    text += blanks() + std::string(name) + blanks() + "(";
    add_argument(values[0]);
    for (uint32_t i = 1; i < most && random.Below(2) == 0; ++i) {
      values[i] = kind == 0 ? random.Below(31) : random.Next() * 0x1p-33;
      text += blanks() + ",";
      add_argument(values[i]);
    }
    text += blanks() + ")" + blanks() + (left > 1 ? "," : "");
    drawn.canonical += fmt::format(
        "{}({}){}", name, fmt::join(values.begin(), values.begin() + most, ","),
        left > 1 ? "," : "");
  }
  return drawn;
}

TEST_CASE("random texts, as they are written and damaged") {
  CounterRandom random(11);
  int errors = 0;
  for (int i = 0; i < 600; ++i) {
    const RandomText drawn = DrawText(random);
    REQUIRE(Canonical(drawn.text) == drawn.canonical);
    std::string damaged = drawn.text;
    for (uint32_t left = 1 + random.Below(4); left > 0; --left) {
      const size_t at = random.Below(static_cast<uint32_t>(damaged.size() + 1));
      const auto length = random.Below(4);
      constexpr std::string_view kTokens("(),. -e9nrj\0\xff", 13);
      if (random.Below(2) == 0) {
        damaged.erase(at, length);
      } else {
        damaged.insert(at, length, kTokens[random.Below(13)]);
      }
    }
    const auto parsed = Augmentation::Parse(damaged, kMean);
    if (parsed.ok()) {
      REQUIRE(Canonical(parsed->ToString()) == parsed->ToString());
    } else {
      ++errors;
      REQUIRE(parsed.status().code() == Code::kInvalidArgument);
      REQUIRE(parsed.status().message().starts_with("augmentation '"));
    }
  }
  CHECK(errors > 100);
  CHECK(errors < 600);
}

TEST_CASE("long texts") {
  std::string parts = "erasing(0.5)";
  for (int i = 0; i < 2000; ++i) parts += ",erasing(0.5)";
  CHECK(Canonical(parts) == parts);
  CHECK(Contains(ParseError(std::string(100000, '(')), "there is no ''"));
  CHECK(Contains(ParseError("erasing(" + std::string(100000, ',') + ")"),
                 "got 100001 arguments"));
  CHECK(Contains(ParseError("erasing(" + std::string(100000, '9') + ")"),
                 "wanted a number from 0 to 1"));
}

TEST_CASE("a function of image and key, of any size") {
  const Augmentation all =
      Parsed("randaugment(3,30),erasing(1),jitter(1,1,1,0.5),randaugment");
  for (const auto& [height, width] :
       {std::pair{0, 0}, {0, 5}, {1, 1}, {1, 40}, {40, 1}, {2, 3}, {31, 17}}) {
    const Tensor image = Picture(height, width), before = image.Clone();
    std::set<std::string> results;
    for (uint64_t key = 0; key < 100; ++key) {
      const Tensor augmented = all.Apply(image, key);
      REQUIRE(augmented.shape() == image.shape());
      REQUIRE(augmented.BitEqual(all.Apply(image.Clone(), key)));
      REQUIRE(image.BitEqual(before));
      results.emplace(reinterpret_cast<const char*>(augmented.raw()),
                      augmented.bytes());
    }
    CHECK(results.size() >= (height * width > 100 ? 95 : 1));
  }
  const Tensor image = Picture(5, 4);
  for (const char* nothing : {"", "erasing(0)", "jitter(0,0,0,0)"}) {
    CHECK(Parsed(nothing).Apply(image, 1).BitEqual(image));
  }
}

TEST_CASE("what is no picture is told") {
  const Augmentation augmentation = Parsed("erasing");
  for (const Tensor& wrong :
       {Tensor(DType::kFloat32, {2, 2, 3}), Tensor(DType::kUInt8, {2, 2, 1}),
        Tensor(DType::kUInt8, {2, 3}), Tensor(DType::kUInt8, {1, 2, 2, 3})}) {
    CHECK(Contains(ErrorOf([&] { (void)augmentation.Apply(wrong, 1); }),
                   "augmentation 'erasing(0.5)': the image is "));
  }
  CHECK(
      Contains(ErrorOf([&] {
                 (void)augmentation.Apply(Tensor(DType::kUInt8, {2, 2, 1}), 1);
               }),
               "uint8[2,2,1], wanted uint8[height,width,3]"));
}

// Whether the pixel whose first byte is the i-th is of the mean colour.
bool IsMean(const Tensor& image, int64_t i) {
  return std::equal(kMeanBytes.begin(), kMeanBytes.end(),
                    image.data<uint8_t>() + i);
}

TEST_CASE("what a part draws does not depend on the others") {
  constexpr int64_t kSide = 32;
  const Tensor plain = Plain(kSide, 60);
  const Augmentation jitter = Parsed("jitter(0.5)");
  const Augmentation erasing = Parsed("erasing(0.5)");
  const Augmentation after_jitter = Parsed("jitter(0.5),erasing(0.5)");
  const Augmentation erasing_twice = Parsed("erasing(0.5),erasing(0.5)");
  int64_t erased = 0, erased_again = 0;
  for (uint64_t key = 0; key < 1000; ++key) {
    const Tensor jittered = jitter.Apply(plain, key);
    const Tensor once = erasing.Apply(plain, key);
    const Tensor both = after_jitter.Apply(plain, key);
    const Tensor twice = erasing_twice.Apply(plain, key);
    int64_t wrong = 0, in_once = 0, in_twice = 0;
    for (int64_t i = 0; i < plain.elements(); i += 3) {
      const bool hole = IsMean(once, i);
      in_once += hole ? 1 : 0;
      in_twice += IsMean(twice, i) ? 1 : 0;
      // The same hole, jittered around it; the first of two is that one, too.
      wrong += IsMean(both, i) == hole ? 0 : 1;
      wrong += hole || both.IntAt(i) == jittered.IntAt(i) ? 0 : 1;
      wrong += !hole || IsMean(twice, i) ? 0 : 1;
    }
    REQUIRE(wrong == 0);
    erased += in_once > 0 ? 1 : 0;
    erased_again += in_once > 0 && in_twice > in_once ? 1 : 0;
  }
  CHECK(erased > 400);
  // The second is another: half of them, less those that lie in the first.
  CHECK(erased_again > 150);
}

TEST_CASE("parts of different names draw apart") {
  const Tensor image = Picture(20, 20);  // which every operation changes
  const Augmentation randaugment = Parsed("randaugment(1,9)");
  const Augmentation erasing = Parsed("erasing(0.5)");
  // Identity is the first of 14 operations, and erasing the lower half: one
  // draw for both would erase all that are kept.
  int64_t kept = 0, kept_and_erased = 0;
  for (uint64_t key = 0; key < 3000; ++key) {
    if (!randaugment.Apply(image, key).BitEqual(image)) continue;
    ++kept;
    kept_and_erased += erasing.Apply(image, key).BitEqual(image) ? 0 : 1;
  }
  CHECK(kept > 100);
  CHECK(kept_and_erased > kept / 4);
  CHECK(kept_and_erased < kept * 3 / 4);
}

TEST_CASE("parts of batches are left to batches") {
  using Kind = BatchMix::Kind;
  const Tensor image = Picture(20, 20);
  const Augmentation plain = Parsed("jitter(0.4),erasing(1)");
  const Augmentation mixing =
      Parsed("mixup(0.2),jitter(0.4),cutmix,erasing(1),mixup(3)");
  for (uint64_t key = 0; key < 50; ++key) {
    REQUIRE(mixing.Apply(image, key).BitEqual(plain.Apply(image, key)));
  }
  CHECK(plain.batch().empty());
  CHECK(Augmentation().batch().empty());
  const std::vector<BatchMix> ways = mixing.batch();
  REQUIRE(ways.size() == 3);
  for (const auto& [i, kind, alpha] : {std::tuple{0, Kind::kMixup, 0.2},
                                       {1, Kind::kCutmix, 1.0},
                                       {2, Kind::kMixup, 3.0}}) {
    CHECK(ways[i].kind == kind);
    CHECK(ways[i].alpha == alpha);
  }
}

TEST_CASE("the mean is rounded to a level") {
  const Tensor image = Plain(40, 7);
  for (const auto& [mean, level] :
       {std::pair{0.0, 0}, {1.0, 255}, {0.5, 128}, {0.4, 102}}) {
    const Augmentation erasing =
        Augmentation::Parse("erasing(1)", {mean, mean, mean}).ValueOrThrow();
    const Tensor result = erasing.Apply(image, 1);
    std::set<int64_t> levels;
    for (int64_t i = 0; i < result.elements(); ++i) {
      levels.insert(result.IntAt(i));
    }
    CHECK((levels == std::set<int64_t>{7, level}));
  }
}

}  // namespace
}  // namespace sluice
