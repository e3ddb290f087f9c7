// Gradients whose steps leave the range, or the digits, of a dtype in which
// they end: products of large and small factors, shares of very many.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using testing::Random;

// The largest and the least normal number, and the distance of 1 to the next.
struct Range {
  DType dtype;
  double most, least, unit;
};
constexpr Range kRanges[] = {
    {DType::kFloat64, 1e300, 1e-300, 0x1p-52},
    {DType::kFloat32, 0x1.fffffep127, 0x1p-126, 0x1p-23},
    {DType::kFloat16, 65504, 0x1p-14, 0x1p-10},
    {DType::kBFloat16, 0x1.fep127, 0x1p-126, 0x1p-7}};

// --- Prod --------------------------------------------------------------------

Tensor ProdGradientOf(const Tensor& x, const Axes& axes) {
  Graph graph;
  const Output in = graph.Placeholder("x", x.dtype(), x.shape());
  const Output dx = Gradients({Prod(in, axes)}, {in})[0];
  return Session(graph).Run({{in, x}}, dx);
}

// For each element the product of those that go into the same result, itself
// apart. `mask`: the dimensions reduced.
std::vector<double> ProductsOfOthers(const Tensor& x, unsigned mask) {
  const Shape& shape = x.shape();
  const auto strides = Strides(shape);
  const auto same_result = [&](int64_t i, int64_t j) {
    for (int d = 0; d < shape.rank(); ++d) {
      const bool reduced = (mask >> d & 1u) != 0;
      if (!reduced && i / strides[d] % shape[d] != j / strides[d] % shape[d]) {
        return false;
      }
    }
    return true;
  };
  std::vector<double> products(x.elements(), 1);
  for (int64_t i = 0; i < x.elements(); ++i) {
    for (int64_t j = 0; j < x.elements(); ++j) {
      if (i != j && same_result(i, j)) products[i] *= x.At(j);
    }
  }
  return products;
}

void CheckProd(const Range& range, const Tensor& x, unsigned mask) {
  Axes axes;
  for (int d = 0; d < x.shape().rank(); ++d) {
    if ((mask >> d & 1u) != 0) axes.push_back(d);
  }
  const std::vector<double> wanted = ProductsOfOthers(x, mask);
  const Tensor got = ProdGradientOf(x, axes);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double size = std::abs(wanted[i]);
    const bool ordinary = size < range.most / 2 && size > range.least * 2;
    if (!ordinary && size != 0) continue;
    CHECK_MESSAGE(std::abs(got.At(i) - wanted[i]) <= 64 * range.unit * size,
                  std::string(NameOf(range.dtype)), " ", x.shape().ToString(),
                  " mask ", mask, " [", i, "]: ", got.At(i), ", wanted ",
                  wanted[i]);
  }
}

TEST_CASE("a product's gradient is what the product of the others is") {
  const auto gradient = [](DType dtype, const std::vector<double>& x) {
    return ProdGradientOf(Tensor::Vector<double>(x).Cast(dtype), {});
  };
  std::vector<double> small_first(40, 100);
  std::fill_n(small_first.begin(), 20, 0.01);
  CHECK(gradient(DType::kFloat32, small_first).At(19) ==
        doctest::Approx(100).epsilon(1e-5));
  CHECK(gradient(DType::kFloat32, {1e30, 1e30, 2, 1e-30, 1e-20}).At(2) ==
        doctest::Approx(1e10).epsilon(1e-5));
  CHECK(gradient(DType::kFloat16, {300, 300, 2, 0.01}).At(2) ==
        doctest::Approx(900).epsilon(1e-3));
}

// Factors and their reciprocals in any order: products of them all are
// ordinary, those of the first few need not be.
TEST_CASE("a product's gradient does not depend on the order of factors") {
  Random random(17);
  const Shape shapes[] = {{24}, {4, 6}, {2, 3, 4}, {3, 2, 2, 2}, {8, 3}};
  for (int round = 0; round < 40; ++round) {
    for (const Range& range : kRanges) {
      const double decades = range.dtype == DType::kFloat16 ? 4 : 25;
      for (const Shape& shape : shapes) {
        std::vector<double> factors;
        while (static_cast<int64_t>(factors.size()) < shape.elements()) {
          const double factor = std::pow(10, random.Real(-decades, decades)) *
                                (random.Chance(2) ? 1 : -1);
          factors.push_back(factor);
          factors.push_back(1 / factor);
        }
        for (size_t i = factors.size() - 1; i > 0; --i) {
          std::swap(factors[i],
                    factors[random.Between(0, static_cast<int64_t>(i))]);
        }
        Tensor x(DType::kFloat64, shape);
        std::copy_n(factors.begin(), x.elements(), x.data<double>());
        if (random.Chance(4)) x.data<double>()[random.Between(0, 7)] = 0;
        x = x.Cast(range.dtype);
        const unsigned all = (1u << shape.rank()) - 1;
        CheckProd(range, x, all);
        CheckProd(range, x, static_cast<unsigned>(random.Between(1, all)));
      }
    }
  }
}

// --- Shares ------------------------------------------------------------------

struct Share {
  std::string name;
  // Of which each element of x has the same share of the gradient.
  std::function<Output(const Output& x)> of;
};

const std::vector<Share>& Shares() {
  static const std::vector<Share> shares = {
      {"Max", [](const Output& x) { return Max(x); }},
      {"Min", [](const Output& x) { return Min(x); }},
      {"Mean", [](const Output& x) { return Mean(x); }},
      {"rows of Max", [](const Output& x) { return Max(x, {1}); }},
      {"columns of Mean",
       [](const Output& x) { return Mean(Transpose(x), {0}, true); }},
      {"the largest logit of SparseSoftmaxCrossEntropy", [](const Output& x) {
         const Output labels = x.graph().Constant(
             Tensor::Vector<int64_t>(std::vector<int64_t>{0}));
         return x.graph()
             .Add({"SparseSoftmaxCrossEntropy", {x, labels}})
             .output(1);
       }}};
  return shares;
}

TEST_CASE("many elements have equal shares of a gradient, and none is lost") {
  for (const Range& range : kRanges) {
    for (const int64_t n : {3, 300, 70'001, 1'000'003}) {
      const double given = 60'000;
      for (const Share& share : Shares()) {
        Graph graph;
        const Output x = graph.Placeholder("x", range.dtype, {1, n});
        const Output y = share.of(x);
        const Output dy =
            graph.Constant(Tensor::Full(range.dtype, y.shape(), given));
        const Tensor dx =
            Session(graph).Run({{x, Tensor::Full(range.dtype, {1, n}, 1)}},
                               Gradients({y}, {x}, {dy})[0]);
        const double wanted =
            dy.node().attrs().TensorOf("value").At(0) / static_cast<double>(n);
        // Half types round once, the others at most twice.
        const double allowed =
            (IsHalf(range.dtype) ? 0.51 : 1.01) * range.unit * wanted;
        for (const int64_t i : {int64_t{0}, n / 2, n - 1}) {
          CHECK_MESSAGE(std::abs(dx.At(i) - wanted) <= allowed, share.name,
                        " of ", n, " ", std::string(NameOf(range.dtype)), " [",
                        i, "]: ", dx.At(i), ", wanted ", wanted);
        }
      }
    }
  }
}

// --- Tile --------------------------------------------------------------------

TEST_CASE("very many tiles' gradients are summed, and none is lost") {
  for (const auto& [tall, wide] : {std::pair(1'000'000, 1), {1000, 1000}}) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {1, 1});
    const Output y = Sum(Tile(x, {tall, wide}) * 0.1);
    const Tensor dx =
        Session(graph).Run({{x, Tensor::Full(DType::kFloat32, {1, 1}, 1)}},
                           Gradients({y}, {x})[0]);
    CHECK(dx.At(0) == doctest::Approx(100'000).epsilon(1e-6));
  }
}

// --- Gather ------------------------------------------------------------------

TEST_CASE("very many slices of one row are summed, and none is lost") {
  for (const int64_t slices : {100'000, 1'000'000}) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
    const Output ids = graph.Constant(Tensor::Zeros(DType::kInt32, {slices}));
    const Tensor dx =
        Session(graph).Run({{x, Tensor::Zeros(DType::kFloat32, {2, 3})}},
                           Gradients({Sum(Gather(x, ids) * 0.1)}, {x})[0]);
    for (int i = 0; i < 3; ++i) {
      CHECK(dx.At(i) ==
            doctest::Approx(0.1 * static_cast<double>(slices)).epsilon(1e-6));
      CHECK(dx.At(3 + i) == 0);
    }
  }
}

}  // namespace
}  // namespace sluice
