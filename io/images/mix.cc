#include "io/images/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "io/counter_random.h"

namespace sluice {
namespace {

// In (0, 1].
double Positive(CounterRandom& random) {
  const uint32_t high = random.Next();
  return Uniform01<double>::FromBits(high, random.Next()) + 0x1p-53;
}

double Normal(CounterRandom& random) {
  const double u = Positive(random);
  return BoxMuller(u, Positive(random))[0];
}

// log of a value from Gamma(shape), shape >= 1 ("A simple method for generating
// gamma variables", Marsaglia and Tsang, 2000, without the squeeze).
double DrawLogGamma(double shape, CounterRandom& random) {
  const double d = shape - 1.0 / 3, c = 1 / (3 * std::sqrt(d));
  for (;;) {
    const double x = Normal(random), root = 1 + c * x, v = root * root * root;
    const double u = Positive(random);
    if (root > 0 && std::log(u) < x * x / 2 + d * (1 - v + std::log(v))) {
      return std::log(d) + std::log(v);
    }
  }
}

// Calls fn(row, other row) for each of n rows and the one before it, the last
// for the first, as these were before any fn.
template <typename Fn>
void ForEachWithOther(Tensor& images, const Fn& fn) {
  const int64_t n = images.shape()[0];
  if (n < 2) return;
  const int64_t size = images.elements() / n;
  float* const rows = images.data<float>();
  const float* const last = rows + (n - 1) * size;
  const std::vector<float> of_last(last, last + size);
  for (int64_t i = n - 1; i > 0; --i) {
    fn(rows + i * size, rows + (i - 1) * size);
  }
  fn(rows, of_last.data());
}

void Mixup(Tensor& images, float own, float share) {
  const int64_t n = images.shape()[0];
  const int64_t size = n > 0 ? images.elements() / n : 0;
  ForEachWithOther(images, [&](float* to, const float* other) {
    for (int64_t i = 0; i < size; ++i) to[i] = own * to[i] + share * other[i];
  });
}

void Cut(Tensor& images, const ImagePart& part) {
  const int64_t channels = images.shape()[3];
  const int64_t row = images.shape()[2] * channels;
  ForEachWithOther(images, [&](float* to, const float* other) {
    for (int64_t y = part.top; y < part.top + part.height; ++y) {
      const int64_t at = y * row + part.left * channels;
      std::copy_n(other + at, part.width * channels, to + at);
    }
  });
}

// What is done to a batch.
struct Drawn {
  BatchMix::Kind kind;
  double lambda;
  ImagePart part = {};  // of kCutmix
  double share = 0;     // of the others

  static Drawn Of(std::span<const BatchMix> ways, int64_t rows, int64_t columns,
                  uint64_t key) {
    // Apart from what the picture of the batch's number draws
    // (io/images/augment.cc).
    CounterRandom random(HashKey(key, HashName("batch")));
    const BatchMix& way =
        ways[random.Below(static_cast<uint32_t>(ways.size()))];
    Drawn drawn = {.kind = way.kind, .lambda = DrawBeta(way.alpha, random)};
    if (way.kind == BatchMix::Kind::kMixup) {
      drawn.share = 1 - drawn.lambda;
    } else if (rows > 0 && columns > 0) {
      const int64_t y = random.Below(static_cast<uint32_t>(rows));
      const int64_t x = random.Below(static_cast<uint32_t>(columns));
      drawn.part = CutBox(rows, columns, drawn.lambda, y, x);
      drawn.share = static_cast<double>(drawn.part.height * drawn.part.width) /
                    static_cast<double>(rows * columns);
    }
    return drawn;
  }

  // Of mixup, as far as pictures are added up.
  float own() const { return static_cast<float>(lambda); }
  float other() const { return static_cast<float>(1 - lambda); }
};

// The picture before each, the last for the first.
int64_t OtherOf(int64_t i, int64_t n) {
  return (i + n - 1) % n;
}

void AddLabels(double share, Example& batch) {
  const Tensor& labels = batch["label"];
  const int64_t n = labels.elements();
  Tensor others(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) {
    others.data<int64_t>()[i] = labels.data<int64_t>()[OtherOf(i, n)];
  }
  batch.Set("mixed_label", others);
  batch.Set("mixed_share", Tensor::Full(DType::kFloat32, {n}, share));
}

// n rows, each true at [begin, begin + size) of `side` places.
Tensor Marks(const Shape& shape, int64_t side, int64_t begin, int64_t size) {
  Tensor marks = Tensor::Zeros(DType::kBool, shape);
  bool* row = marks.data<bool>();
  for (int64_t i = shape[0]; i > 0; --i, row += side) {
    std::fill_n(row + begin, size, true);
  }
  return marks;
}

void CheckLabels(const Tensor& labels) {
  if (labels.dtype() == DType::kInt64 && labels.shape().rank() == 1) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("mixing a batch: label is {}{}, wanted int64[n]",
                          NameOf(labels.dtype()), labels.shape().ToString()));
}

void CheckBatch(const Tensor& images, const Tensor& labels) {
  if (images.dtype() == DType::kFloat32 && images.shape().rank() == 4 &&
      labels.dtype() == DType::kInt64 && labels.shape().rank() == 1 &&
      images.shape()[0] == labels.shape()[0]) {
    return;
  }
  throw Error(Code::kInvalidArgument,
              fmt::format("mixing a batch: image is {}{} and label {}{}, "
                          "wanted float32[n,height,width,channels] and "
                          "int64[n]",
                          NameOf(images.dtype()), images.shape().ToString(),
                          NameOf(labels.dtype()), labels.shape().ToString()));
}

}  // namespace

double DrawBeta(double alpha, CounterRandom& random) {
  // X / (X + Y) of two values of Gamma(alpha). Where alpha < 1, X is one of
  // Gamma(alpha + 1) times u^(1 / alpha), which may be too small for a double:
  // so only the ratio of X and Y is reckoned with, as a logarithm.
  const bool boosted = alpha < 1;
  const double shape = boosted ? alpha + 1 : alpha;
  const double x = DrawLogGamma(shape, random);
  const double y = DrawLogGamma(shape, random);
  double ratio = y - x;
  if (boosted) {
    const double u = std::log(Positive(random));
    ratio += (std::log(Positive(random)) - u) / alpha;
  }
  return 1 / (1 + std::exp(ratio));
}

ImagePart CutBox(int64_t rows, int64_t columns, double lambda, int64_t y,
                 int64_t x) {
  const double r = 0.5 * std::sqrt(1 - lambda);
  const auto half = [&](int64_t side) {
    return static_cast<int64_t>(r * static_cast<double>(side));
  };
  const int64_t top = std::max<int64_t>(y - half(rows), 0);
  const int64_t left = std::max<int64_t>(x - half(columns), 0);
  return {.top = top,
          .left = left,
          .height = std::min(y + half(rows), rows) - top,
          .width = std::min(x + half(columns), columns) - left};
}

void MixBatch(std::span<const BatchMix> ways, Example& batch, uint64_t key) {
  Tensor& images = batch["image"];
  CheckBatch(images, batch["label"]);
  const Drawn drawn =
      Drawn::Of(ways, images.shape()[1], images.shape()[2], key);
  if (drawn.kind == BatchMix::Kind::kMixup) {
    Mixup(images, drawn.own(), drawn.other());
  } else {
    Cut(images, drawn.part);
  }
  AddLabels(drawn.share, batch);
}

void DrawMix(std::span<const BatchMix> ways, int64_t rows, int64_t columns,
             Example& batch, uint64_t key) {
  CheckLabels(batch["label"]);
  const Drawn drawn = Drawn::Of(ways, rows, columns, key);
  AddLabels(drawn.share, batch);
  const int64_t n = batch["label"].elements();
  Tensor with(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) with.data<int64_t>()[i] = OtherOf(i, n);
  batch.Set("mixed_with", with);
  const bool adds = drawn.kind == BatchMix::Kind::kMixup && n > 1;
  const Shape one = {n, 1, 1, 1};
  batch.Set("mixed_own",
            Tensor::Full(DType::kFloat32, one, adds ? drawn.own() : 1));
  batch.Set("mixed_other",
            Tensor::Full(DType::kFloat32, one, adds ? drawn.other() : 0));
  const ImagePart& part = drawn.part;
  batch.Set("mixed_rows", Marks({n, rows, 1, 1}, rows, part.top, part.height));
  batch.Set("mixed_columns",
            Marks({n, 1, columns, 1}, columns, part.left, part.width));
}

}  // namespace sluice
