// Derivatives of Pow, the second ones among them, where one of the formula's
// factors vanishes or has no bound.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/elementwise.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using testing::Random;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Pow of two scalars with its first and second derivatives. `fixed`: the
// exponent is a constant, which gradients may make use of.
struct Powers {
  Graph graph;
  Output a, b;
  Output da, db;

  Powers(DType dtype, double exponent, bool fixed)
      : a(graph.Placeholder("a", dtype, {})),
        b(fixed ? graph.Constant(Tensor::Full(dtype, {}, exponent))
                : graph.Placeholder("b", dtype, {})) {
    const Outputs first = Gradients({Pow(a, b)}, {a, b});
    da = first[0];
    db = first[1];
  }
  double At(const Output& what, double x, double y) const {
    std::map<Output, Tensor> given = {{a, Tensor::Full(a.dtype(), {}, x)}};
    if (b.node().IsPlaceholder()) given[b] = Tensor::Full(b.dtype(), {}, y);
    return Evaluate(what, given).ValueOrThrow().At(0);
  }
};

struct Edge {
  double a, b, da, db;
};
// The slopes are PyTorch's, but for b's where a is 0 or less: 0 here.
constexpr Edge kEdges[] = {
    {0, 0, 0, 0},          {-0.0, 0, 0, 0},       {0, 1, 1, 0},
    {0, 2, 0, 0},          {0, 0.5, kInf, 0},     {2, 0, 0, 0.6931471805599453},
    {1, 0, 0, 0},          {-2, 3, 12, 0},        {-2, 2, -4, 0},
    {-2, 1, 1, 0},         {-2, 0, 0, 0},         {-2, -1, -0.25, 0},
    {kInf, 2, kInf, kInf}, {kInf, 1, 1, kInf},    {kInf, 0, 0, kInf},
    {-kInf, 0, 0, 0},      {kNan, 0, 0, kNan},    {2, kInf, kInf, kInf},
    {2, -kInf, kNan, 0},   {0, -1, -kInf, 0},     {-0.0, -1, -kInf, 0},
    {-2, 0.5, kNan, 0},    {-kInf, 3, kInf, 0},   {kNan, 2, kNan, kNan},
    {-2, kNan, kNan, 0},   {2, kNan, kNan, kNan}, {0, kNan, kNan, 0}};

bool Same(double got, double wanted) {
  if (std::isnan(wanted)) return std::isnan(got);
  if (std::isinf(wanted)) return got == wanted;
  return std::abs(got - wanted) <= 1e-6 * (1 + std::abs(wanted));
}

TEST_CASE("slopes of powers where a limit is a convention") {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (const Edge& edge : kEdges) {
      for (const bool fixed : {false, true}) {
        const Powers powers(dtype, edge.b, fixed);
        const double da = powers.At(powers.da, edge.a, edge.b);
        const double db = powers.At(powers.db, edge.a, edge.b);
        CHECK_MESSAGE(Same(da, edge.da), edge.a, "^", edge.b, ": da ", da,
                      ", wanted ", edge.da);
        CHECK_MESSAGE(Same(db, edge.db), edge.a, "^", edge.b, ": db ", db,
                      ", wanted ", edge.db);
      }
    }
  }
}

TEST_CASE("second derivatives of powers agree with finite differences") {
  Random random(5);
  std::vector<double> exponents = {0, 1, 2, -1, 3, 0.5};
  for (int i = 0; i < 10; ++i) exponents.push_back(random.Real(-2, 3));
  constexpr double kStep = 1e-5;
  for (const double b : exponents) {
    for (int i = 0; i < 5; ++i) {
      const double a = i == 0 ? 2 : random.Real(0.3, 3);
      for (const bool fixed : {false, true}) {
        const Powers p(DType::kFloat64, b, fixed);
        const Powers free(DType::kFloat64, b, false);
        const Outputs of_da = Gradients({p.da}, {p.a, p.b});
        const Outputs of_db = Gradients({p.db}, {p.a, p.b});
        const auto check = [&](const Output& got, const Output& slope,
                               double x_step, double y_step) {
          const double wanted = (free.At(slope, a + x_step, b + y_step) -
                                 free.At(slope, a - x_step, b - y_step)) /
                                (2 * kStep);
          CAPTURE(a);
          CAPTURE(b);
          CAPTURE(fixed);
          CHECK(p.At(got, a, b) == doctest::Approx(wanted).epsilon(1e-6));
        };
        check(of_da[0], free.da, kStep, 0);
        check(of_da[1], free.da, 0, kStep);
        check(of_db[0], free.db, kStep, 0);
        check(of_db[1], free.db, 0, kStep);
      }
    }
  }
}

// The slope by a of a^0 is 0 wherever a is, and that by b of that slope 1 / a.
TEST_CASE("the mixed derivative at exponent 0") {
  const Powers p(DType::kFloat64, 0, false);
  const Outputs of_da = Gradients({p.da}, {p.a, p.b});
  CHECK(p.At(of_da[1], 2, 0) == 0.5);
  CHECK(p.At(of_da[1], -4, 0) == -0.25);
  CHECK(p.At(of_da[0], 2, 0) == 0);
  CHECK(p.At(of_da[0], 0, 0) == 0);
  CHECK(p.At(p.da, 1e-310, 0) == 0);  // whose reciprocal is infinite
}

}  // namespace
}  // namespace sluice
