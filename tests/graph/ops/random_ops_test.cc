// Distributions of the random ops and what their bits depend on.
#include "graph/ops/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "engine/threads.h"
#include "graph/compile/evaluate.h"

namespace sluice {
namespace {

constexpr int64_t kSamples = 200'000;

Tensor Value(const Output& output, const StepKey& key = {}) {
  StepContext step;
  static_cast<StepKey&>(step) = key;
  return Evaluate(output, {}, step).ValueOrThrow();
}

double NormalCdf(double z) {
  return 0.5 * std::erfc(-z / std::sqrt(2.0));
}

// Of a normal cut at two deviations.
double TruncatedCdf(double z) {
  const double tail = NormalCdf(-2);
  return (NormalCdf(std::clamp(z, -2.0, 2.0)) - tail) / (1 - 2 * tail);
}

// The Kolmogorov-Smirnov statistic, scaled by sqrt(n): beyond 1.95 with
// probability 0.001 if the samples have this distribution. The seeds here are
// fixed, so a test passes always or never.
double KolmogorovSmirnov(const Tensor& samples,
                         const std::function<double(double)>& cdf) {
  std::vector<double> sorted;
  for (int64_t i = 0; i < samples.elements(); ++i) {
    sorted.push_back(samples.At(i));
  }
  std::sort(sorted.begin(), sorted.end());
  const double n = static_cast<double>(sorted.size());
  double worst = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double expected = cdf(sorted[i]);
    const double rank = static_cast<double>(i);
    worst = std::max({worst, std::abs(expected - rank / n),
                      std::abs(expected - (rank + 1) / n)});
  }
  return worst * std::sqrt(n);
}

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0;
};
Moments MomentsOf(const Tensor& samples) {
  const double n = static_cast<double>(samples.elements());
  Moments m;
  for (int64_t i = 0; i < samples.elements(); ++i) m.mean += samples.At(i) / n;
  double third = 0, fourth = 0;
  for (int64_t i = 0; i < samples.elements(); ++i) {
    const double d = samples.At(i) - m.mean;
    m.variance += d * d / n;
    third += d * d * d / n;
    fourth += d * d * d * d / n;
  }
  m.skewness = third / std::pow(m.variance, 1.5);
  m.kurtosis = fourth / (m.variance * m.variance);
  return m;
}

std::pair<double, double> Range(const Tensor& samples) {
  double lo = samples.At(0), hi = lo;
  for (int64_t i = 0; i < samples.elements(); ++i) {
    lo = std::min(lo, samples.At(i));
    hi = std::max(hi, samples.At(i));
  }
  return {lo, hi};
}

TEST_CASE("RandomUniform") {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Graph graph;
    const Tensor x =
        Value(RandomUniform(graph, {kSamples}, -2, 3, dtype), {.seed = 1});
    CHECK(KolmogorovSmirnov(x, [](double v) { return (v + 2) / 5; }) < 1.95);
    const Moments m = MomentsOf(x);
    CHECK(m.mean == doctest::Approx(0.5).epsilon(0.02));
    CHECK(m.variance == doctest::Approx(25.0 / 12).epsilon(0.01));
    const auto [lo, hi] = Range(x);
    CHECK(lo >= -2);
    CHECK(lo < -1.999);
    CHECK(hi < 3);
    CHECK(hi > 2.999);
  }
}

TEST_CASE("RandomUniform stays below its bound in half precision") {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (auto [low, high] : {std::pair{0.0, 1.0}, {-1.0, 0.0}, {2.0, 2.5}}) {
      Graph graph;
      const Tensor x =
          Value(RandomUniform(graph, {kSamples}, low, high, dtype));
      const auto [lo, hi] = Range(x);
      CHECK(lo >= low);
      CHECK(hi < high);
      CHECK(MomentsOf(x).mean ==
            doctest::Approx((low + high) / 2).epsilon(0.02));
    }
  }
}

TEST_CASE("RandomUniform of integers takes each value equally often") {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    Graph graph;
    const Tensor x =
        Value(RandomUniform(graph, {kSamples}, -3, 4, dtype), {.seed = 5});
    std::array<double, 7> counts{};
    for (int64_t i = 0; i < kSamples; ++i) {
      REQUIRE(x.IntAt(i) >= -3);
      REQUIRE(x.IntAt(i) < 4);
      ++counts[x.IntAt(i) + 3];
    }
    double chi_squared = 0;
    for (double count : counts) {
      const double expected = kSamples / 7.0;
      chi_squared += (count - expected) * (count - expected) / expected;
    }
    CHECK(chi_squared < 22.46);  // 6 degrees of freedom, probability 0.001
  }
}

TEST_CASE("RandomNormal") {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Graph graph;
    const Tensor x =
        Value(RandomNormal(graph, {kSamples / 2, 2}, 1, 3, dtype), {.seed = 2});
    CHECK(KolmogorovSmirnov(
              x, [](double v) { return NormalCdf((v - 1) / 3); }) < 1.95);
    const Moments m = MomentsOf(x);
    CHECK(std::abs(m.mean - 1) < 4 * 3 / std::sqrt(double{kSamples}));
    CHECK(m.variance == doctest::Approx(9).epsilon(0.02));
    CHECK(std::abs(m.skewness) < 0.03);
    CHECK(m.kurtosis == doctest::Approx(3).epsilon(0.03));
    const auto [lo, hi] = Range(x);
    CHECK(std::isfinite(lo));
    CHECK(lo < 1 - 3 * 3.5);
    CHECK(hi > 1 + 3 * 3.5);
  }
}

TEST_CASE("TruncatedNormal") {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Graph graph;
    const Tensor x =
        Value(TruncatedNormal(graph, {kSamples}, 0, 1, dtype), {.seed = 3});
    CHECK(KolmogorovSmirnov(x, TruncatedCdf) < 1.95);
    const auto [lo, hi] = Range(x);
    CHECK(lo >= -2);
    CHECK(hi <= 2);
    CHECK(lo < -1.99);
    CHECK(hi > 1.99);
    CHECK(std::sqrt(MomentsOf(x).variance) ==
          doctest::Approx(0.8796).epsilon(0.01));
  }
}

TEST_CASE("Bits depend on seed, step, replica and name alone") {
  Graph graph;
  const Output x = RandomNormal(graph, {1000});
  const Tensor base = Value(x, {.seed = 1, .step = 2, .replica = 3});
  CHECK(base.BitEqual(Value(x, {.seed = 1, .step = 2, .replica = 3})));
  CHECK(!base.BitEqual(Value(x, {.seed = 9, .step = 2, .replica = 3})));
  CHECK(!base.BitEqual(Value(x, {.seed = 1, .step = 9, .replica = 3})));
  CHECK(!base.BitEqual(Value(x, {.seed = 1, .step = 2, .replica = 9})));
  const Output other = RandomNormal(graph, {1000});
  CHECK(!base.BitEqual(Value(other, {.seed = 1, .step = 2, .replica = 3})));

  // The same name in another graph, whatever else that holds; and a prefix of
  // a tensor does not change with its size.
  Graph second;
  second.Constant(1.0, DType::kFloat32);
  const Output longer = RandomNormal(second, {1003});
  REQUIRE(longer.node().origin() == x.node().origin());
  const Tensor more = Value(longer, {.seed = 1, .step = 2, .replica = 3});
  CHECK(more.Rows(0, 1000).BitEqual(base));
}

TEST_CASE("Bits do not depend on the number of threads") {
  Graph graph;
  const Output xs[] = {
      RandomUniform(graph, {100'003}),
      RandomNormal(graph, {100'003}),
      TruncatedNormal(graph, {100'003}),
      RandomUniform(graph, {100'003}, 0, 10, DType::kInt64),
  };
  for (const Output& x : xs) {
    SetComputeThreads(1);
    const Tensor one = Value(x);
    SetComputeThreads(3);
    const Tensor three = Value(x);
    SetComputeThreads(0);
    CHECK(one.BitEqual(three));
  }
}

TEST_CASE("Impossible distributions are refused") {
  Graph graph;
  CHECK_THROWS_AS(RandomUniform(graph, {2}, 1, 1), Error);
  // Whose length, or ends, the dtype does not have.
  CHECK_THROWS_AS(RandomUniform(graph, {2}, -3e38, 3e38), Error);
  CHECK_THROWS_AS(RandomUniform(graph, {2}, 0, 1e39), Error);
  CHECK_THROWS_AS(RandomUniform(graph, {2}, 1, 1 + 1e-12), Error);
  CHECK_THROWS_AS(RandomUniform(graph, {2}, 0, 1e5, DType::kFloat16), Error);
  CHECK_THROWS_AS(RandomUniform(graph, {2}, -INFINITY, 0), Error);
  CHECK_NOTHROW(RandomUniform(graph, {2}, -1e38, 1e38));
  CHECK_NOTHROW(RandomUniform(graph, {2}, -3e38, 3e38, DType::kFloat64));
  CHECK_THROWS_AS(RandomUniform(graph, {2}, 0, 1, DType::kBool), Error);
  CHECK_THROWS_AS(RandomUniform(graph, {2}, 0, 1e10, DType::kInt32), Error);
  CHECK_THROWS_AS(RandomNormal(graph, {2}, 0, -1), Error);
  CHECK_THROWS_AS(RandomNormal(graph, {2}, 0, 1, DType::kInt32), Error);
  CHECK_THROWS_AS(RandomNormal(graph, {-1}), Error);
}

}  // namespace
}  // namespace sluice
