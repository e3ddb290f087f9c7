// Mixing of batches: the distribution that lambda is drawn from, the mixtures
// against a loop over their values, how often what is drawn.
#include "io/images/mix.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "io/counter_random.h"
#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using doctest::Approx;
using testing::Contains;
using testing::ErrorOf;
using testing::Random;
using Kind = BatchMix::Kind;

// The distribution function of Beta(alpha, alpha), by the midpoint rule. Where
// the density has a pole, x = u^(1 / alpha) takes it away.
class BetaFunction {
 public:
  explicit BetaFunction(double alpha) : alpha_(alpha) {
    double sum = 0;
    for (int i = 0; i < kParts; ++i) {
      const double u = (i + 0.5) * Top() / kParts, x = ToX(u);
      const double pole = alpha < 1 ? 1 / alpha : std::pow(x, alpha - 1);
      sums_.push_back(sum += pole * std::pow(1 - x, alpha - 1));
    }
  }
  double operator()(double x) const {
    if (x > 0.5) return 1 - (*this)(1 - x);
    const double u = alpha_ < 1 ? std::pow(x, alpha_) : x;
    const double at = u / Top() * kParts;
    const int part = std::min(static_cast<int>(at), kParts - 1);
    const double before = part == 0 ? 0 : sums_[part - 1];
    return (before + (sums_[part] - before) * (at - part)) / (2 * sums_.back());
  }

 private:
  static constexpr int kParts = 20000;
  double Top() const { return alpha_ < 1 ? std::pow(0.5, alpha_) : 0.5; }
  double ToX(double u) const {
    return alpha_ < 1 ? std::pow(u, 1 / alpha_) : u;
  }

  double alpha_;
  std::vector<double> sums_;
};

TEST_CASE("the reference is the distribution function where that is known") {
  for (const double x : {0.0, 0.01, 0.2, 0.5, 0.77, 1.0}) {
    CHECK(BetaFunction(1)(x) == Approx(x));
    CHECK(BetaFunction(2)(x) == Approx(x * x * (3 - 2 * x)));
    CHECK(BetaFunction(0.5)(x) ==
          Approx(2 / std::acos(-1) * std::asin(std::sqrt(x))));
  }
}

TEST_CASE("lambda is from the Beta distribution") {
  constexpr int kDraws = 20000;
  for (const double alpha : {0.05, 0.2, 0.5, 0.99, 1.0, 1.5, 4.0, 60.0}) {
    CAPTURE(alpha);
    const BetaFunction wanted(alpha);
    CounterRandom random(static_cast<uint64_t>(alpha * 100));
    std::vector<double> draws(kDraws);
    double sum = 0, squares = 0;
    for (double& draw : draws) {
      draw = DrawBeta(alpha, random);
      REQUIRE((draw >= 0 && draw <= 1));
      sum += draw - 0.5;
      squares += (draw - 0.5) * (draw - 0.5);
    }
    // Five standard deviations; a square's is at most the variance.
    const double variance = 1 / (4 * (2 * alpha + 1));
    CHECK(std::abs(sum / kDraws) < 5 * std::sqrt(variance / kDraws));
    CHECK(squares / kDraws ==
          Approx(variance).epsilon(5 * std::sqrt(2.0 / kDraws)));
    // Kolmogorov and Smirnov: one in 100,000 is above. Doubles near 1 are too
    // few for a small alpha.
    std::sort(draws.begin(), draws.end());
    double greatest = 0;
    for (int i = 0; i < kDraws && draws[i] < 0.999; ++i) {
      const double at = wanted(draws[i]);
      greatest = std::max(
          {greatest, at - 1.0 * i / kDraws, 1.0 * (i + 1) / kDraws - at});
    }
    CHECK(greatest * std::sqrt(kDraws) < 2.47);
  }
}

TEST_CASE("lambda for the smallest and the greatest alpha") {
  using Limits = std::numeric_limits<double>;
  for (const double alpha : {Limits::denorm_min(), Limits::min(), 1e-300}) {
    CounterRandom random(3);
    int ones = 0;
    for (int i = 0; i < 1000; ++i) {
      const double lambda = DrawBeta(alpha, random);
      REQUIRE((lambda == 0 || lambda == 1));
      ones += lambda == 1 ? 1 : 0;
    }
    CHECK(std::abs(ones - 500) < 80);
  }
  for (const double alpha : {1e100, Limits::max()}) {
    CounterRandom random(3);
    for (int i = 0; i < 1000; ++i) {
      REQUIRE(DrawBeta(alpha, random) == Approx(0.5).epsilon(1e-10));
    }
  }
}

// Whether CutBox must hold the pixel `at` of a side when it lies around `from`.
bool WithinSide(int64_t at, int64_t from, int64_t side, double lambda) {
  const double half =
      std::floor(0.5 * std::sqrt(1 - lambda) * static_cast<double>(side));
  return static_cast<double>(at) >= static_cast<double>(from) - half &&
         static_cast<double>(at) < static_cast<double>(from) + half;
}

TEST_CASE("the box that is cut") {
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    const int64_t rows = random.Between(1, 30), columns = random.Between(1, 30);
    const double lambda = round % 10 == 0   ? 0
                          : round % 10 == 1 ? 1
                                            : random.Real(0, 1);
    const int64_t y = random.Between(0, rows - 1);
    const int64_t x = random.Between(0, columns - 1);
    const ImagePart part = CutBox(rows, columns, lambda, y, x);
    REQUIRE((part.height >= 0 && part.width >= 0));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const bool in = r >= part.top && r < part.top + part.height &&
                        c >= part.left && c < part.left + part.width;
        REQUIRE(in == (WithinSide(r, y, rows, lambda) &&
                       WithinSide(c, x, columns, lambda)));
      }
    }
  }
}

// A batch with random values, all different, and labels.
Example RandomBatch(Random& random, const Shape& shape) {
  Tensor image(DType::kFloat32, shape), label(DType::kInt64, {shape[0]});
  for (float& value : image.values<float>()) {
    value = static_cast<float>(random.Real(-3, 3));
  }
  for (int64_t& value : label.values<int64_t>()) value = random.Between(0, 999);
  return {{"image", image}, {"label", label}};
}

// Mixed, and not changed itself.
Example Mixed(const std::vector<BatchMix>& ways, const Example& batch,
              uint64_t key) {
  Example mixed;
  for (const auto& [name, tensor] : batch) mixed.Set(name, tensor.Clone());
  MixBatch(ways, mixed, key);
  return mixed;
}

// Of a mixed batch its share, once the rest is seen to be right: labels, and
// each value, which is wanted(own, other, pixel, share).
template <typename Wanted>
double CheckMixture(const Example& batch, const Example& mixed,
                    const Wanted& wanted) {
  REQUIRE(mixed.size() == 4);
  REQUIRE(mixed["label"].BitEqual(batch["label"]));
  const Tensor& image = batch["image"];
  const int64_t n = image.shape()[0];
  const int64_t size = image.elements() / n, channels = image.shape()[3];
  REQUIRE(mixed["image"].shape() == image.shape());
  REQUIRE(mixed["mixed_label"].shape() == Shape({n}));
  REQUIRE(mixed["mixed_share"].dtype() == DType::kFloat32);
  const double share = mixed["mixed_share"].At(0);
  REQUIRE((share >= 0 && share <= 1));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t other = i == 0 ? n - 1 : i - 1;
    REQUIRE(mixed["mixed_share"].At(i) == share);
    REQUIRE(mixed["mixed_label"].IntAt(i) == batch["label"].IntAt(other));
    for (int64_t k = 0; k < size; ++k) {
      REQUIRE(mixed["image"].At(i * size + k) ==
              wanted(image.At(i * size + k), image.At(other * size + k),
                     k / channels, share));
    }
  }
  return share;
}

Shape RandomShape(Random& random) {
  return {random.Between(1, 6), random.Between(1, 9), random.Between(1, 9),
          random.Between(1, 4)};
}

TEST_CASE("mixup adds pictures up") {
  Random random(7);
  for (uint64_t key = 0; key < 300; ++key) {
    const Example batch = RandomBatch(random, RandomShape(random));
    const Example mixed = Mixed({{Kind::kMixup, 0.7}}, batch, key);
    CheckMixture(batch, mixed,
                 [](double own, double other, int64_t, double share) {
                   return Approx((1 - share) * own + share * other)
                       .scale(3)
                       .epsilon(1e-6);
                 });
    if (batch["label"].elements() == 1) {
      CHECK(mixed["image"].BitEqual(batch["image"]));
    }
    CHECK(mixed["image"].BitEqual(
        Mixed({{Kind::kMixup, 0.7}}, batch, key)["image"]));
  }
}

// The pixels of which a mixture has the other's, by what is in the first row
// of a batch of two.
std::vector<bool> Replaced(const Example& batch, const Example& mixed) {
  const int64_t channels = batch["image"].shape()[3];
  std::vector<bool> replaced;
  for (int64_t k = 0; k < batch["image"].elements() / batch["image"].shape()[0];
       k += channels) {
    replaced.push_back(mixed["image"].At(k) != batch["image"].At(k));
  }
  return replaced;
}

TEST_CASE("cutmix puts a part of one picture into another") {
  Random random(8);
  int64_t holes = 0;
  for (uint64_t key = 0; key < 300; ++key) {
    Shape shape = RandomShape(random);
    shape.set(0, random.Between(2, 6));
    const Example batch = RandomBatch(random, shape);
    const Example mixed = Mixed({{Kind::kCutmix, 1}}, batch, key);
    const std::vector<bool> replaced = Replaced(batch, mixed);
    const double share = CheckMixture(
        batch, mixed, [&](double own, double other, int64_t pixel, double) {
          return replaced[pixel] ? other : own;
        });
    // A rectangle: every row has the same or nothing.
    const int64_t rows = shape[1], columns = shape[2];
    int64_t count = 0, least = columns, most = -1, full = 0;
    for (int64_t y = 0; y < rows; ++y) {
      int64_t in_row = 0;
      for (int64_t x = 0; x < columns; ++x) {
        if (!replaced[y * columns + x]) continue;
        ++in_row;
        least = std::min(least, x);
        most = std::max(most, x);
      }
      count += in_row;
      full += in_row > 0 ? 1 : 0;
    }
    REQUIRE(count == full * std::max<int64_t>(most - least + 1, 0));
    const double wanted =
        static_cast<double>(count) / static_cast<double>(rows * columns);
    REQUIRE(share == static_cast<double>(static_cast<float>(wanted)));
    holes += count > 0 ? 1 : 0;
  }
  CHECK(holes > 100);
}

TEST_CASE("how often a pixel is replaced") {
  constexpr int64_t kRows = 9, kColumns = 6;
  constexpr int kKeys = 6000, kLambdas = 500;
  // Over all centres and, alpha being 1, all lambdas alike.
  std::array<double, kRows * kColumns> wanted{};
  for (int i = 0; i < kLambdas; ++i) {
    const double lambda = (i + 0.5) / kLambdas;
    for (int64_t at = 0; at < kRows * kColumns; ++at) {
      int64_t rows = 0, columns = 0;
      for (int64_t y = 0; y < kRows; ++y) {
        rows += WithinSide(at / kColumns, y, kRows, lambda) ? 1 : 0;
      }
      for (int64_t x = 0; x < kColumns; ++x) {
        columns += WithinSide(at % kColumns, x, kColumns, lambda) ? 1 : 0;
      }
      wanted[at] +=
          static_cast<double>(rows * columns) / (kRows * kColumns * kLambdas);
    }
  }
  Random random(9);
  const Example batch = RandomBatch(random, {2, kRows, kColumns, 1});
  std::array<int, kRows * kColumns> counts{};
  for (uint64_t key = 0; key < kKeys; ++key) {
    const auto replaced =
        Replaced(batch, Mixed({{Kind::kCutmix, 1}}, batch, key));
    for (size_t at = 0; at < counts.size(); ++at) {
      counts[at] += replaced[at] ? 1 : 0;
    }
  }
  for (size_t at = 0; at < counts.size(); ++at) {
    const double expected = wanted[at] * kKeys;
    CHECK(std::abs(counts[at] - expected) <
          5 * std::sqrt(expected * (1 - wanted[at])));
  }
}

TEST_CASE("of several ways each batch draws one, all as likely") {
  // Where pictures are 0 and 1, a mixup of 1/2 is neither.
  Tensor image = Tensor::Full(DType::kFloat32, {2, 8, 8, 1}, 0);
  std::fill_n(image.data<float>(), 64, 1.0F);
  const Example batch = {{"image", image},
                         {"label", Tensor::Full(DType::kInt64, {2}, 5)}};
  const std::vector<BatchMix> ways = {
      {Kind::kCutmix, 1}, {Kind::kMixup, 1e9}, {Kind::kCutmix, 0.2}};
  int mixups = 0;
  for (uint64_t key = 0; key < 3000; ++key) {
    const double value = Mixed(ways, batch, key)["image"].At(0);
    mixups += value != 0 && value != 1 ? 1 : 0;
  }
  CHECK(std::abs(mixups - 1000) < 5 * std::sqrt(3000 * 2.0 / 9));
}

// Pictures 0, 1, 2... of one pixel, which is also their label.
Dataset Pictures(int64_t n) {
  Tensor image(DType::kFloat32, {n, 1, 1, 1}), label(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) {
    image.data<float>()[i] = static_cast<float>(i);
    label.data<int64_t>()[i] = i;
  }
  return datasets::FromTensors({{"image", image}, {"label", label}}, "pixels");
}

TEST_CASE("workers draw the same and mix the pictures of their share") {
  constexpr int64_t kWorkers = 3;
  const auto mix = [](Example& batch, uint64_t key) {
    const std::array ways = {BatchMix{Kind::kMixup, 1}};
    MixBatch(ways, batch, key);
  };
  // Batches of 7, 7, 1, and again: the shares of the last are 1, 0 and 0.
  const Dataset whole = Pictures(15).Batch(7).MapRandom(4, mix).Repeat(2);
  std::vector<Iterator> workers;
  for (int64_t rank = 0; rank < kWorkers; ++rank) {
    workers.push_back(whole.Share(rank, kWorkers).MakeIterator());
  }
  Iterator all = whole.MakeIterator();
  Example batch, share;
  std::vector<double> shares;
  while (all.Next(&batch).ValueOrThrow()) {
    shares.push_back(batch["mixed_share"].At(0));
    int64_t begin = 0;
    for (Iterator& worker : workers) {
      REQUIRE(worker.Next(&share).ValueOrThrow());
      REQUIRE(share.size() == 4);
      const int64_t n = share["label"].elements();
      REQUIRE(share["mixed_label"].elements() == n);
      REQUIRE(share["mixed_share"].elements() == n);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t own = batch["label"].IntAt(begin + i);
        const int64_t other = batch["label"].IntAt(begin + (i + n - 1) % n);
        REQUIRE(share["label"].IntAt(i) == own);
        REQUIRE(share["mixed_label"].IntAt(i) == other);
        REQUIRE(share["mixed_share"].At(i) == shares.back());
        REQUIRE(share["image"].At(i) ==
                Approx((1 - shares.back()) * static_cast<double>(own) +
                       shares.back() * static_cast<double>(other)));
      }
      begin += n;
    }
    REQUIRE(begin == batch["label"].elements());
  }
  // Other ones in every batch of every epoch.
  CHECK(shares.size() == 6);
  std::sort(shares.begin(), shares.end());
  CHECK(std::unique(shares.begin(), shares.end()) == shares.end());
  CHECK(whole.Sample()["mixed_share"].shape() == Shape({1}));
}

TEST_CASE("what is no batch of pictures is told; nothing is mixed of nothing") {
  const Tensor image(DType::kFloat32, {2, 3, 4, 1}), label(DType::kInt64, {2});
  const auto error = [](const Tensor& images, const Tensor& labels) {
    return ErrorOf([&] {
      (void)Mixed({{Kind::kMixup, 1}}, {{"image", images}, {"label", labels}},
                  1);
    });
  };
  const std::string wanted = "wanted float32[n,height,width,channels]";
  CHECK(Contains(error(Tensor(DType::kUInt8, {2, 3, 4, 1}), label), wanted));
  CHECK(Contains(error(Tensor(DType::kFloat32, {2, 3, 4}), label),
                 "float32[2,3,4] and label int64[2]"));
  CHECK(Contains(error(image, Tensor(DType::kInt64, {3})), wanted));
  CHECK(Contains(error(image, Tensor(DType::kInt32, {2})), wanted));
  CHECK(Contains(error(image, Tensor(DType::kInt64, {2, 1})), wanted));
  for (const Kind kind : {Kind::kMixup, Kind::kCutmix}) {
    for (const Shape& shape : {Shape({0, 3, 4, 1}), Shape({2, 0, 4, 1}),
                               Shape({2, 3, 0, 1}), Shape({2, 3, 4, 0})}) {
      const Example mixed =
          Mixed({{kind, 1}},
                {{"image", Tensor(DType::kFloat32, shape)},
                 {"label", Tensor(DType::kInt64, {shape[0]})}},
                1);
      CHECK(mixed["mixed_share"].elements() == shape[0]);
    }
  }
}

}  // namespace
}  // namespace sluice
