// Normalisation over very many rows, or very long ones, where a running sum has
// ever fewer digits for what is added: every kernel against the sums.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "tests/support/each_kernel.h"

namespace sluice::testing {
namespace {

constexpr float kStep = 0.31622776F;  // whose square is 0.1
constexpr float kGradient = 0.1F;     // which no float is exactly
constexpr double kTolerance = 1e-5;
constexpr double kEpsilon = 1e-5;

Tensor Filled(const Shape& shape, double value) {
  return Tensor::Full(DType::kFloat32, shape, value);
}

double Alternating(int64_t i) {
  return i % 2 == 0 ? double{kStep} : -double{kStep};
}

// Of an even number of elements: the mean is 0.
Tensor AlternatingTensor(const Shape& shape) {
  Tensor x(DType::kFloat32, shape);
  for (int64_t i = 0; i < x.elements(); ++i) {
    x.data<float>()[i] = static_cast<float>(Alternating(i));
  }
  return x;
}

// Of what alternates.
double InvStd() {
  return 1 / std::sqrt(double{kStep} * double{kStep} + kEpsilon);
}

// The largest distance from wanted(i).
template <typename Wanted>
double Worst(const Tensor& got, const Wanted& wanted) {
  double worst = 0;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double error = std::abs(got.At(i) - wanted(i));
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

constexpr auto kNone = [](int64_t) { return 0.0; };

// Means of blocks differ by less than a float of the size of all that has been
// averaged before can tell apart, divided by their number.
TEST_CASE("the mean over very many blocks of rows moves to the end") {
  const int64_t rows = 8192, channels = 512;
  const auto value = [](int64_t row) {
    return 1e6 + static_cast<double>(row / 64) * 0.0625;  // a float
  };
  Tensor x(DType::kFloat32, {rows, channels});
  for (int64_t i = 0; i < x.elements(); ++i) {
    x.data<float>()[i] = static_cast<float>(value(i / channels));
  }
  double mean = 0, squares = 0;
  for (int64_t r = 0; r < rows; ++r) mean += value(r) / rows;
  for (int64_t r = 0; r < rows; ++r) squares += std::pow(value(r) - mean, 2);
  const double inv_std = 1 / std::sqrt(squares / rows + kEpsilon);
  const Tensor ones = Filled({channels}, 1), zeros = Filled({channels}, 0);
  ForEachKernel(
      "BatchNorm", {{"epsilon", kEpsilon}, {"momentum", 0.9}},
      {x, ones, zeros, zeros, ones}, [&](const std::vector<Tensor>& y) {
        const double rounded = mean * 0x1p-22;
        CHECK(Worst(y[1], [&](int64_t) { return mean; }) <= rounded);
        CHECK(Worst(y[2], [&](int64_t) { return inv_std; }) < 1e-3 * inv_std);
        CHECK((value(0) - mean) * inv_std ==
              doctest::Approx(-1.72).epsilon(0.01));
        CHECK(Worst(y[0], [&](int64_t i) {
                return (value(i / channels) - mean) * inv_std;
              }) < rounded * inv_std);
      });
}

TEST_CASE("batch normalisation keeps the digits of very many rows") {
  for (const Shape& shape :
       {Shape{1 << 14, 1}, Shape{(1 << 18) + 2, 7}, Shape{1 << 18, 8}}) {
    CAPTURE(shape.ToString());
    const int64_t channels = shape[1];
    // By row, so that the mean of each channel is 0.
    const auto step = [&](int64_t i) { return Alternating(i / channels); };
    Tensor x(DType::kFloat32, shape);
    for (int64_t i = 0; i < x.elements(); ++i) {
      x.data<float>()[i] = static_cast<float>(step(i));
    }
    const Tensor ones = Filled({channels}, 1), zeros = Filled({channels}, 0);
    ForEachKernel(
        "BatchNorm", {{"epsilon", kEpsilon}, {"momentum", 0.9}},
        {x, ones, zeros, zeros, ones}, [&](const std::vector<Tensor>& y) {
          CHECK(Worst(y[0], [&](int64_t i) { return step(i) * InvStd(); }) <
                kTolerance);
        });
    const double sum = static_cast<double>(shape[0]) * double{kGradient};
    ForEachKernel(
        "BatchNormGrad", {},
        {x, ones, zeros, Filled({channels}, InvStd()),
         Filled(shape, kGradient)},
        [&](const std::vector<Tensor>& y) {
          CHECK(Worst(y[0], kNone) < kTolerance * kGradient * InvStd());
          CHECK(Worst(y[1], kNone) < kTolerance * sum);
          CHECK(Worst(y[2], [&](int64_t) { return sum; }) < kTolerance * sum);
        });
  }
}

TEST_CASE("layer normalisation keeps the digits of very long rows") {
  const Shape shape = {1, 1 << 17}, width = {1 << 17};
  const Tensor x = AlternatingTensor(shape);
  ForEachKernel("LayerNorm", {{"epsilon", kEpsilon}},
                {x, Filled(width, 1), Filled(width, 0)},
                [&](const std::vector<Tensor>& y) {
                  CHECK(Worst(y[0], [](int64_t i) {
                          return Alternating(i) * InvStd();
                        }) < kTolerance);
                });
  ForEachKernel("LayerNormGrad", {},
                {x, Filled(width, 1), Filled({1}, 0), Filled({1}, InvStd()),
                 Filled(shape, kGradient)},
                [](const std::vector<Tensor>& y) {
                  CHECK(Worst(y[0], kNone) < kTolerance * kGradient * InvStd());
                });
}

TEST_CASE("gradients of layer normalisation keep the digits of many rows") {
  const int64_t rows = 1 << 18, width = 8;
  const Tensor x = AlternatingTensor({rows, width});
  const double sum = static_cast<double>(rows) * double{kGradient};
  ForEachKernel(
      "LayerNormGrad", {},
      {x, Filled({width}, 1), Filled({rows}, 0), Filled({rows}, InvStd()),
       Filled({rows, width}, kGradient)},
      [&](const std::vector<Tensor>& y) {
        CHECK(Worst(y[0], kNone) < kTolerance * kGradient * InvStd());
        CHECK(Worst(y[1], [&](int64_t i) {
                return sum * Alternating(i) * InvStd();
              }) < kTolerance * sum);
        CHECK(Worst(y[2], [&](int64_t) { return sum; }) < kTolerance * sum);
      });
}

}  // namespace
}  // namespace sluice::testing
