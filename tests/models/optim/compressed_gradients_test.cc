// Gradients that travel between workers in half types, against the same
// rounding by hand. Workers are threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "models/optim/reduce_gradients.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using dist::testing::InThreads;
using dist::testing::JoinAll;
using testing::Contains;
using testing::ErrorOf;

// To so many binary digits of a number's fraction, to even where it is between
// two, with float16's exponents if `small`.
float Rounded(float value, int digits, bool small) {
  if (!std::isfinite(value) || value == 0) return value;
  const int least = small ? -14 : -126;
  const int exponent = std::max(std::ilogb(value), least);
  const float unit = std::ldexp(1.0f, exponent - digits);
  const float rounded = std::nearbyint(value / unit) * unit;
  if (small && std::abs(rounded) > 65504) {
    return std::copysign(std::numeric_limits<float>::infinity(), value);
  }
  return rounded;
}
float RoundedTo(DType dtype, float value) {
  if (dtype == DType::kFloat16) return Rounded(value, 10, true);
  return dtype == DType::kBFloat16 ? Rounded(value, 7, false) : value;
}

// Worker `rank`'s gradient of a variable.
Tensor GradientOf(uint32_t seed, int rank, const Shape& shape) {
  std::mt19937 random(seed * 31 + static_cast<uint32_t>(rank));
  Tensor gradient(DType::kFloat32, shape);
  for (int64_t i = 0; i < gradient.elements(); ++i) {
    const int exponent = static_cast<int>(random() % 36) - 18;
    gradient.data<float>()[i] = std::ldexp(
        static_cast<float>(random() % 20001) / 10000.0f - 1.0f, exponent);
  }
  return gradient;
}

TEST_CASE("means of rounded gradients") {
  for (const DType between :
       {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (uint32_t seed = 0; seed < 12; ++seed) {
      CAPTURE(NameOf(between));
      CAPTURE(seed);
      const Shape shapes[] = {{5}, {3, 7}, {0}, {}, {1000}};
      auto groups = JoinAll(2);
      std::vector<std::vector<Tensor>> means(2);
      std::vector<int64_t> sent(2);
      const dist::testing::Watchdog watchdog;
      InThreads(2, [&](int rank) {
        Graph graph;
        std::vector<GradientAndVariable> pairs;
        for (const Shape& shape : shapes) {
          pairs.push_back({graph.Constant(GradientOf(seed, rank, shape)) * 1,
                           graph.Variable("v" + std::to_string(pairs.size()),
                                          Zeros(shape, DType::kFloat32))});
        }
        pairs.push_back({graph.Constant(Tensor::Scalar(1e-300)) * 1.0,
                         graph.Variable("d", Zeros({}, DType::kFloat64))});
        const size_t bytes = seed % 2 == 0 ? 64 : 100000;
        ReduceGradients(pairs, between, {bytes, bytes});
        std::vector<Output> fetches;
        for (const auto& pair : pairs) fetches.push_back(pair.gradient);
        dist::Group* const group = groups[static_cast<size_t>(rank)].get();
        SessionOptions options;
        options.collective = std::move(groups[static_cast<size_t>(rank)]);
        options.fuse = seed % 3 != 0;
        Session session(graph, options);
        means[static_cast<size_t>(rank)] = session.Run({}, fetches);
        sent[static_cast<size_t>(rank)] = group->bytes_sent();
      });
      for (size_t v = 0; v < std::size(shapes); ++v) {
        const Tensor mine = GradientOf(seed, 0, shapes[v]);
        const Tensor other = GradientOf(seed, 1, shapes[v]);
        for (const auto& worker : means) {
          REQUIRE(worker[v].dtype() == DType::kFloat32);
          REQUIRE(worker[v].shape() == shapes[v]);
        }
        CHECK(means[0][v].BitEqual(means[1][v]));
        for (int64_t i = 0; i < mine.elements(); ++i) {
          const auto part = [&](const Tensor& t) {
            return RoundedTo(between,
                             RoundedTo(between, t.data<float>()[i]) / 2);
          };
          const float wanted = RoundedTo(between, part(mine) + part(other));
          const float got = means[0][v].data<float>()[i];
          // Of two infinities.
          if (std::isnan(wanted) && std::isnan(got)) continue;
          CHECK(got == wanted);
        }
      }
      CHECK(means[0].back().At(0) == 1e-300);  // of float64, as it is
      if (seed % 2 == 1) {
        // One bucket of 1027 and one of one double, and their headers.
        const int64_t data = 1027 * static_cast<int64_t>(SizeOf(between)) + 8;
        for (const int64_t bytes : sent) {
          CHECK(bytes >= data);
          CHECK(bytes < data + 400);
        }
      }
    }
  }
}

TEST_CASE("gradients do not travel as anything else") {
  CHECK(Contains(ErrorOf([] {
                   optimizers::Sgd(0.1).WithAllReduce(
                       {.between = DType::kInt32});
                 }),
                 "not int32"));
}

}  // namespace
}  // namespace sluice
