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

void Mixup(Tensor& images, double lambda) {
  const auto own = static_cast<float>(lambda);
  const auto share = static_cast<float>(1 - lambda);
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

// Returns the share of the others.
double MixIn(const BatchMix& way, Tensor& images, CounterRandom& random) {
  const double lambda = DrawBeta(way.alpha, random);
  if (way.kind == BatchMix::Kind::kMixup) {
    Mixup(images, lambda);
    return 1 - lambda;
  }
  const int64_t rows = images.shape()[1], columns = images.shape()[2];
  if (rows == 0 || columns == 0) return 0;
  const int64_t y = random.Below(static_cast<uint32_t>(rows));
  const int64_t x = random.Below(static_cast<uint32_t>(columns));
  const ImagePart part = CutBox(rows, columns, lambda, y, x);
  Cut(images, part);
  return static_cast<double>(part.height * part.width) /
         static_cast<double>(rows * columns);
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
  const Tensor& labels = batch["label"];
  CheckBatch(images, labels);
  // Apart from what the picture of the batch's number draws
  // (io/images/augment.cc).
  CounterRandom random(HashKey(key, HashName("batch")));
  const BatchMix& way = ways[random.Below(static_cast<uint32_t>(ways.size()))];
  const double share = MixIn(way, images, random);
  const int64_t n = labels.elements();
  Tensor others(DType::kInt64, {n}), shares(DType::kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) {
    others.data<int64_t>()[i] = labels.data<int64_t>()[(i + n - 1) % n];
    shares.data<float>()[i] = static_cast<float>(share);
  }
  batch.Set("mixed_label", others);
  batch.Set("mixed_share", shares);
}

}  // namespace sluice
