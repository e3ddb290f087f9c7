// Ops whose results are sums, and gradients that are: in half types they add in
// float32 and round once, however many terms there are (docs/numerics.md).
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using testing::Random;

constexpr int64_t kTerms = 3000;  // 50 x 60

Output Ones(const Output& like, const Shape& shape) {
  return like.graph().Constant(Tensor::Full(like.dtype(), shape, 1));
}

Output Integers(const Output& like, const std::vector<int64_t>& values) {
  return like.graph().Constant(Tensor::Vector<int64_t>(values));
}

// 0, 1, 0, 1, ...
Output TwoRows(const Output& like) {
  std::vector<int64_t> rows(kTerms);
  for (int64_t i = 0; i < kTerms; ++i) rows[i] = i % 2;
  return Integers(like, rows);
}

Output Picture(const Output& terms) {
  return Reshape(terms, {1, 50, 60, 1});
}

// What flows back to x when `terms` flow into y, which has as many elements.
Output Back(const Output& y, const Output& x, const Output& terms) {
  return Gradients({y}, {x}, {Reshape(terms, y.shape())})[0];
}

// A picture with one bright pixel, which many windows have in common.
Output WithPeak(const Output& like) {
  Tensor picture = Tensor::Zeros(DType::kFloat32, {1, 50, 60, 1});
  picture.data<float>()[25 * 60 + 30] = 9;
  return like.graph().Constant(picture.Cast(like.dtype()));
}

constexpr PoolOptions kOverlapping = {
    .window = {49, 59}, .strides = {1, 1}, .padding = Padding::kSame};

struct Sums {
  std::string name;
  std::function<Output(const Output& terms)> of;
};

const std::vector<Sums>& AllSums() {
  static const std::vector<Sums> all = {
      {"Sum", [](const Output& t) { return Sum(t); }},
      {"Mean", [](const Output& t) { return Mean(t); }},
      {"columns of Sum",
       [](const Output& t) {
         return Sum(Reshape(t, {1000, 3}), {0});
       }},
      {"SumTo",
       [](const Output& t) {
         return SumTo(Reshape(t, {1000, 3}), {1, 3});
       }},
      {"CumSum", [](const Output& t) { return CumSum(t, 0); }},
      {"L2Loss", [](const Output& t) { return L2Loss(t); }},
      {"AddN",
       [](const Output& t) {
         return AddN(Unstack(Reshape(t, {1000, 3})));
       }},
      {"ScatterAdd",
       [](const Output& t) { return ScatterAdd(Ones(t, {3}), TwoRows(t), t); }},
      {"ScatterAdd behind an axis",
       [](const Output& t) {
         return ScatterAdd(Ones(t, {2, 3}),
                           Integers(t, std::vector<int64_t>(kTerms / 2, 1)),
                           Reshape(t, {2, kTerms / 2}), {.axis = 1});
       }},
      {"Gather's gradient",
       [](const Output& t) {
         const Output table = Ones(t, {3});
         return Back(Gather(table, TwoRows(t)), table, t);
       }},
      {"EmbeddingLookup's gradient",
       [](const Output& t) {
         const Output table = Ones(t, {2, 3});
         const Output ids = Integers(t, std::vector<int64_t>(kTerms / 3, 1));
         return Back(EmbeddingLookup(table, ids), table, t);
       }},
      {"Tile's gradient",
       [](const Output& t) {
         const Output x = Ones(t, {1, 3});
         return Back(Tile(x, {1000, 1}), x, t);
       }},
      {"BroadcastTo's gradient",
       [](const Output& t) {
         const Output x = Ones(t, {3});
         return Back(BroadcastTo(x, {1000, 3}), x, t);
       }},
      {"Add's gradient",
       [](const Output& t) {
         const Output x = Ones(t, {1});
         return Back(t + x, x, t);
       }},
      {"BiasAdd's gradient",
       [](const Output& t) {
         const Output x = Ones(t, {3});
         return Back(BiasAdd(Reshape(t, {1000, 3}), x), x, t);
       }},
      {"Concat's parts that are one tensor",
       [](const Output& t) {
         const Output x = Ones(t, {3});
         return Back(Concat(std::vector<Output>(1000, x), 0), x, t);
       }},
      {"MatMul",
       [](const Output& t) {
         return MatMul(Reshape(t, {1, kTerms}), Ones(t, {kTerms, 2}));
       }},
      {"BatchMatMul",
       [](const Output& t) {
         return BatchMatMul(Reshape(t, {2, 1, kTerms / 2}),
                            Ones(t, {2, kTerms / 2, 3}));
       }},
      {"MatMul's gradient",
       [](const Output& t) {
         const Output w = Ones(t, {2, 3});
         return Back(MatMul(Ones(t, {1000, 2}), w), w, t);
       }},
      {"Conv2D",
       [](const Output& t) {
         return Conv2D(Picture(t), Ones(t, {50, 60, 1, 1}),
                       {.padding = Padding::kValid});
       }},
      {"the gradient of Conv2D's filter",
       [](const Output& t) {
         const Output filter = Ones(t, {1, 1, 2, 3});
         return Back(Conv2D(Ones(t, {1, 20, 50, 2}), filter), filter, t);
       }},
      {"the gradient of DepthwiseConv2D's filter",
       [](const Output& t) {
         const Output filter = Ones(t, {1, 1, 3, 1});
         return Back(DepthwiseConv2D(Ones(t, {1, 20, 50, 3}), filter), filter,
                     t);
       }},
      {"AvgPool",
       [](const Output& t) {
         return AvgPool(Picture(t), {.window = {50, 60}, .strides = {50, 60}});
       }},
      {"AvgPool's gradient",
       [](const Output& t) {
         const Output x = Ones(t, {1, 50, 60, 1});
         return Back(AvgPool(x, kOverlapping), x, t);
       }},
      {"MaxPool's gradient",
       [](const Output& t) {
         const Output x = WithPeak(t);
         return Back(MaxPool(x, kOverlapping), x, t);
       }},
  };
  return all;
}

Tensor Computed(const Sums& sums, const Tensor& terms, bool fuse) {
  Graph graph;
  const Output t = graph.Placeholder("terms", terms.dtype(), terms.shape());
  Session session(graph, {.fuse = fuse});
  return session.Run({{t, terms}}, sums.of(t));
}

TEST_CASE("sums in half types are rounded once") {
  Random random(3);
  Tensor terms(DType::kFloat32, {kTerms});
  for (float& term : terms.values<float>()) {
    term = static_cast<float>(random.Real(0.5, 1.5));
  }
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor given = terms.Cast(half);
    // Half a unit in the last place at most, and what float32 loses.
    const double allowed = 1.05 * std::exp2(half == DType::kFloat16 ? -11 : -8);
    for (const Sums& sums : AllSums()) {
      const Tensor wanted = Computed(sums, given.Cast(DType::kFloat64), true);
      for (const bool fuse : {false, true}) {
        const Tensor got = Computed(sums, given, fuse);
        REQUIRE(got.shape() == wanted.shape());
        double worst = 0;
        for (int64_t i = 0; i < wanted.elements(); ++i) {
          const double error = std::abs(got.At(i) - wanted.At(i));
          worst = std::max(worst, error / (std::abs(wanted.At(i)) + 1e-30));
        }
        CHECK_MESSAGE(worst <= allowed, sums.name, " in ",
                      std::string(NameOf(half)), fuse ? ", fused" : "",
                      ": off by ", worst, " of it, allowed ", allowed);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
