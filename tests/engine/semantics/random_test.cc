#include "engine/semantics/random.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace sluice {
namespace {

// The known answers that the authors publish with Random123 (kat_vectors,
// philox4x32 10).
TEST_CASE("Philox gives the published known answers") {
  CHECK(Philox({0, 0, 0, 0}, {0, 0}) ==
        PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t kOnes = 0xffffffff;
  CHECK(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
               {0xa4093822, 0x299f31d0}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("FNV-1a gives the published known answers") {
  CHECK(HashName("") == 0xcbf29ce484222325u);
  CHECK(HashName("a") == 0xaf63dc4c8601ec8cu);
  CHECK(HashName("foobar") == 0x85944171f73967e8u);
}

constexpr RandomStream kStream(1, HashName("dropout"), 7, 0);

TEST_CASE("streams differ in every part of their key") {
  std::set<PhiloxBlock> first;
  for (uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 32}) {
    for (const char* name : {"a", "b"}) {
      for (uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
        for (uint32_t replica : {0u, 1u}) {
          first.insert(
              RandomStream(seed, HashName(name), step, replica).Block(0));
        }
      }
    }
  }
  CHECK(first.size() == 3 * 2 * 3 * 2);
  CHECK(kStream.Block(3) != kStream.Block(4));
  CHECK(kStream.Block(3) != kStream.Block(3, 1));
  CHECK(kStream.Block(uint64_t{1} << 32) != kStream.Block(0));
}

// By another implementation of what is said of keys and counters, which gives
// the answers above.
TEST_CASE("a stream's bits are those of its key") {
  CHECK(kStream.Block(3) ==
        PhiloxBlock{0xb5af09c0, 0x93cdeedb, 0xc59eaafd, 0x32e89a92});
  const RandomStream halves((uint64_t{5} << 32) + 9, HashName("fc1/dropout"),
                            (uint64_t{3} << 32) + 4, 2);
  CHECK(halves.Block((uint64_t{1} << 32) + 6, 1) ==
        PhiloxBlock{0x69cbe325, 0xa2255bbb, 0x897cea37, 0xf1564220});
}

template <typename Distribution>
void CheckPieces(const Distribution& distribution) {
  const auto value = Draw(distribution, kStream, 0);
  std::vector<std::decay_t<decltype(value)>> whole(1001), pieces(1001);
  ForEachDraw(distribution, kStream, 0, 1001,
              [&](int64_t i, auto x) { whole[i] = x; });
  for (int64_t begin = 0; begin < 1001; begin += 77) {
    ForEachDraw(distribution, kStream, begin,
                std::min<int64_t>(begin + 77, 1001),
                [&](int64_t i, auto x) { pieces[i] = x; });
  }
  CHECK(whole == pieces);
  for (int64_t i : {0, 1, 2, 3, 500, 1000}) {
    CHECK(whole[i] == Draw(distribution, kStream, i));
  }
}

TEST_CASE("an element depends on its index alone") {
  CheckPieces(Uniform01<float>());
  CheckPieces(Uniform01<double>());
  CheckPieces(StandardNormal<float>());
  CheckPieces(StandardNormal<double>());
  CheckPieces(StandardTruncatedNormal<float>());
  CheckPieces(StandardTruncatedNormal<double>());
  CheckPieces(UniformBelow{10});
}

constexpr int64_t kSamples = 400000;

struct Moments {
  double mean = 0, variance = 0, fourth = 0, lowest = 1e9, highest = -1e9;
  double lag = 0;  // correlation with the next element
};

template <typename Distribution>
Moments MomentsOf(const Distribution& distribution) {
  std::vector<double> x(kSamples);
  ForEachDraw(distribution, kStream, 0, kSamples,
              [&](int64_t i, auto v) { x[i] = double(v); });
  Moments m;
  for (double v : x) {
    m.mean += v / kSamples;
    m.lowest = std::min(m.lowest, v);
    m.highest = std::max(m.highest, v);
  }
  for (double v : x) m.variance += std::pow(v - m.mean, 2) / kSamples;
  for (int64_t i = 0; i < kSamples; ++i) {
    m.fourth += std::pow(x[i] - m.mean, 4) / kSamples;
    if (i > 0) m.lag += (x[i] - m.mean) * (x[i - 1] - m.mean) / kSamples;
  }
  m.lag /= m.variance;
  return m;
}

// Bounds are about five standard errors of each estimate.
TEST_CASE("moments of the distributions") {
  const auto uniform = [](const Moments& m) {
    CHECK(std::abs(m.mean - 0.5) < 0.0025);
    CHECK(std::abs(m.variance - 1 / 12.0) < 0.0007);
    CHECK(std::abs(m.lag) < 0.008);
    CHECK(m.lowest >= 0);
    CHECK(m.lowest < 1e-4);
    CHECK(m.highest < 1);
    CHECK(m.highest > 1 - 1e-4);
  };
  uniform(MomentsOf(Uniform01<float>()));
  uniform(MomentsOf(Uniform01<double>()));
  const auto normal = [](const Moments& m) {
    CHECK(std::abs(m.mean) < 0.008);
    CHECK(std::abs(m.variance - 1) < 0.012);
    CHECK(std::abs(m.fourth - 3) < 0.08);
    CHECK(std::abs(m.lag) < 0.008);
    CHECK(m.highest > 4);
    CHECK(m.lowest < -4);
  };
  normal(MomentsOf(StandardNormal<float>()));
  normal(MomentsOf(StandardNormal<double>()));
  const auto truncated = [](const Moments& m) {
    CHECK(std::abs(m.mean) < 0.007);
    // 1 - 2 * 2 phi(2) / (2 Phi(2) - 1).
    CHECK(std::abs(m.variance - 0.773741) < 0.006);
    CHECK(m.highest <= 2);
    CHECK(m.highest > 1.999);
    CHECK(m.lowest >= -2);
  };
  truncated(MomentsOf(StandardTruncatedNormal<float>()));
  truncated(MomentsOf(StandardTruncatedNormal<double>()));
}

TEST_CASE("integers below a bound are all reached equally often") {
  std::vector<int64_t> counts(7, 0);
  ForEachDraw(UniformBelow{7}, kStream, 0, kSamples,
              [&](int64_t, uint64_t x) { ++counts.at(x); });
  const double expected = kSamples / 7.0;
  double chi_square = 0;
  for (int64_t count : counts) {
    chi_square += std::pow(count - expected, 2) / expected;
  }
  CHECK(chi_square < 22.5);  // 6 degrees of freedom, p = 0.001
  CHECK(Draw(UniformBelow{1}, kStream, 5) == 0);
  uint64_t highest = 0;
  ForEachDraw(UniformBelow{~uint64_t{0}}, kStream, 0, 100,
              [&](int64_t, uint64_t x) { highest = std::max(highest, x); });
  CHECK(highest > uint64_t{1} << 63);
}

TEST_CASE("the extremes of Box and Muller are finite") {
  for (float u : {0x1p-33f, 1.0f}) {
    for (float v : {0.0f, 0.25f, 0.5f, 1 - 0x1p-24f}) {
      const auto z = BoxMuller(u, v);
      const float x = z[0], y = z[1];
      CHECK(std::isfinite(x));
      CHECK(std::isfinite(y));
      CHECK(x * x + y * y == doctest::Approx(-2 * std::log(u)).epsilon(1e-5));
    }
  }
}

}  // namespace
}  // namespace sluice
