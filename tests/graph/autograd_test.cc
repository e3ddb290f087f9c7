// Reverse-mode differentiation: values against finite differences in float64,
// and which paths carry gradients at all.
#include "graph/autograd.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/session/session.h"

namespace sluice {
namespace {

using Given = std::map<Output, Tensor>;

Tensor Vector(std::initializer_list<double> values) {
  return Tensor::Array<double>({static_cast<int64_t>(values.size())}, values);
}

std::vector<double> Value(const Output& output, const Given& given) {
  const Tensor value = Evaluate(output, given).ValueOrThrow();
  std::vector<double> elements;
  for (int64_t i = 0; i < value.elements(); ++i) {
    elements.push_back(value.At(i));
  }
  return elements;
}

// d(sum of y) / dx by central differences; error O(h^2).
std::vector<double> Numeric(const Output& y, const Output& x,
                            const Given& given) {
  constexpr double kStep = 1e-5;
  std::vector<double> slopes;
  for (int64_t i = 0; i < given.at(x).elements(); ++i) {
    double sums[2] = {0, 0};
    for (int side : {0, 1}) {
      Given moved = given;
      moved[x] = given.at(x).Clone();
      moved[x].data<double>()[i] += side ? kStep : -kStep;
      for (double element : Value(y, moved)) sums[side] += element;
    }
    slopes.push_back((sums[1] - sums[0]) / (2 * kStep));
  }
  return slopes;
}

void CheckClose(const std::vector<double>& got,
                const std::vector<double>& wanted) {
  REQUIRE_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-6));
  }
}

// Checks the gradient of y with respect to every x in `given`.
void CheckGradients(const Output& y, const Given& given) {
  std::vector<Output> xs;
  for (const auto& [x, value] : given) xs.push_back(x);
  const std::vector<Output> gradients = Gradients({y}, xs);
  for (size_t i = 0; i < xs.size(); ++i) {
    CAPTURE(xs[i].name());
    REQUIRE(gradients[i].valid());
    CHECK_EQ(gradients[i].dtype(), DType::kFloat64);
    CheckClose(Value(gradients[i], given), Numeric(y, xs[i], given));
  }
}

struct Two {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat64, {3});
  Output y = graph.Placeholder("y", DType::kFloat64, {3});
  Given given = {{x, Vector({0.3, -0.7, 1.1})}, {y, Vector({1.5, 0.2, -0.4})}};
};

TEST_CASE("chains") {
  Two t;
  CheckGradients(Sum(Tanh(Exp(Sin(t.x) * 0.5) - t.y)), t.given);
}

TEST_CASE("fan-out sums what comes back") {
  Two t;
  const Output shared = Sin(t.x) * t.y;
  CheckGradients(Sum(shared * shared + Exp(shared) + t.x * shared), t.given);
  // The same operand twice, and a diamond of diamonds.
  Output z = t.x;
  for (int i = 0; i < 5; ++i) z = z * 0.5 + Tanh(z);
  CheckClose(Value(Gradients({Sum(z)}, {t.x})[0], t.given),
             Numeric(Sum(z), t.x, t.given));
}

TEST_CASE("several ys are summed, one may be given twice") {
  Two t;
  const Output a = Sum(Square(t.x)), b = Sum(Exp(t.x));
  const auto both = Gradients({a, b, a}, {t.x})[0];
  CheckClose(Value(both, t.given), Numeric(2 * a + b, t.x, t.given));
  // ys that are not scalar: the sum of their elements.
  CheckClose(Value(Gradients({Square(t.x)}, {t.x})[0], t.given),
             Value(2 * t.x, t.given));
}

TEST_CASE("seeds weight the ys") {
  Two t;
  const Output y = Square(t.x);
  const auto weighted = Gradients({y}, {t.x}, {t.y});
  CheckClose(Value(weighted[0], t.given), Value(2 * t.x * t.y, t.given));
  CHECK_THROWS_WITH_AS(Gradients({y}, {t.x}, {Sum(t.y)}),
                       "the seed of 'square' is float64[], wanted float64[3]",
                       Error);
  CHECK_THROWS_AS(Gradients({y, y}, {t.x}, {t.y}), Error);
}

TEST_CASE("broadcast operands get gradients of their own shape") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat64, {2, 3});
  const Output row = graph.Placeholder("row", DType::kFloat64, {3});
  const Output column = graph.Placeholder("column", DType::kFloat64, {2, 1});
  const Output scalar = graph.Placeholder("scalar", DType::kFloat64, {});
  CheckGradients(
      Sum(Sigmoid(x * row + column) * scalar),
      {{x, Tensor::Array<double>({2, 3}, {.1, -.2, .3, .4, -.5, .6})},
       {row, Vector({1, -2, 3})},
       {column, Tensor::Array<double>({2, 1}, {0.5, -0.25})},
       {scalar, Tensor::Scalar(1.5)}});
}

TEST_CASE("with an unknown batch") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat64, {kUnknown, 2});
  const Output w = graph.Placeholder("w", DType::kFloat64, {2, 2});
  const Output b = graph.Placeholder("b", DType::kFloat64, {2});
  const Output loss = Mean(Square(Tanh(MatMul(x, w) + b)));
  const auto gradients = Gradients({loss}, {x, w, b});
  CHECK_EQ(gradients[0].shape().ToString(), "[?,2]");
  CHECK_EQ(gradients[1].shape(), Shape{2, 2});
  CHECK_EQ(gradients[2].shape(), Shape{2});

  // Evaluated in a graph whose batch is known, as a session does.
  Graph fed;
  const Output x3 = fed.Placeholder("x", DType::kFloat64, {3, 2});
  const Output w2 = fed.Placeholder("w", DType::kFloat64, {2, 2});
  const Output b2 = fed.Placeholder("b", DType::kFloat64, {2});
  CheckGradients(
      Mean(Square(Tanh(MatMul(x3, w2) + b2))),
      {{x3, Tensor::Array<double>({3, 2}, {.1, .2, -.3, .4, .5, -.6})},
       {w2, Tensor::Array<double>({2, 2}, {1, -1, .5, 2})},
       {b2, Vector({0.1, -0.2})}});
}

TEST_CASE("nodes with several outputs") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat64, {6});
  const Given given = {{x, Vector({.1, .2, .3, .4, .5, .6})}};
  const std::vector<Output> parts = Split(x, 3);
  CheckGradients(Sum(parts[0] * Exp(parts[1]) * parts[2] + parts[1]), given);
  // No gradient flows into the others.
  CheckGradients(Sum(Square(parts[1])), given);
}

TEST_CASE("paths without derivative carry none") {
  Two t;
  auto gradient = [&](const Output& y) { return Gradients({y}, {t.x})[0]; };
  CHECK_FALSE(gradient(Sum(t.y)).valid());
  CHECK_FALSE(gradient(Floor(t.x)).valid());
  CHECK_FALSE(gradient(StopGradient(t.x)).valid());
  CHECK_FALSE(gradient(Cast(Greater(t.x, 0), DType::kFloat64)).valid());
  CHECK_FALSE(
      gradient(Cast(Cast(t.x, DType::kInt32), DType::kFloat64)).valid());
  // A stopped path beside an open one.
  CheckClose(Value(gradient(StopGradient(t.x) * t.x), t.given),
             Value(t.x, t.given));
  CheckClose(
      Value(gradient(Select(Greater(t.x, 0), Square(t.x), t.y)), t.given),
      {0.6, 0, 2.2});
  // An integer operand.
  const Output rows = t.graph.Constant(Tensor::Array<int64_t>({2}, {2, 2}));
  CheckClose(Value(gradient(Gather(t.x, rows)), t.given), {0, 0, 2});

  const auto zeros = GradientsOrZeros({Sum(t.y)}, {t.x, t.y});
  CheckClose(Value(zeros[0], t.given), {0, 0, 0});
  CheckClose(Value(zeros[1], t.given), {1, 1, 1});
}

TEST_CASE("x itself, and what lies between") {
  Two t;
  CheckClose(Value(Gradients({t.x}, {t.x})[0], t.given), {1, 1, 1});
  // With respect to an inner result, beyond which nothing is computed.
  const Output inner = Exp(t.x);
  const Output y = Sum(Square(inner) * t.x);
  const size_t before = t.graph.nodes().size();
  const auto dy = Gradients({y}, {inner})[0];
  CheckClose(Value(dy, t.given), Value(2 * inner * t.x, t.given));
  for (size_t i = before; i < t.graph.nodes().size(); ++i) {
    CHECK(t.graph.nodes()[i]->name().find("gradients/exp/") ==
          std::string::npos);
  }
  // Both ends of one path.
  const auto both = Gradients({y}, {t.x, inner});
  CheckClose(Value(both[0], t.given), Numeric(y, t.x, t.given));
  CheckClose(Value(both[1], t.given), Value(dy, t.given));
}

TEST_CASE("a subset of the variables costs only its own paths") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4, 3});
  const Output w1 = graph.Variable("w1", Ones({3, 3}));
  const Output w2 = graph.Variable("w2", Ones({3, 3}));
  const Output loss = Sum(MatMul(Tanh(MatMul(x, w1)), w2));
  auto added = [&](const std::vector<Output>& xs) {
    const size_t before = graph.nodes().size();
    const auto gradients = Gradients({loss}, xs);
    for (const Output& gradient : gradients) CHECK(gradient.valid());
    return graph.nodes().size() - before;
  };
  const size_t last = added({w2});
  const size_t all = added({w1, w2});
  CHECK(last < all);
}

TEST_CASE("gradients of gradients") {
  Two t;
  const Output f = Sum(Exp(t.x * t.y) + Square(Sin(t.x)) / (Square(t.y) + 1));
  const auto first = Gradients({f}, {t.x, t.y});
  // The Hessian's row sums against differences of the first gradient.
  for (const Output& gradient : first) {
    for (const Output& x : {t.x, t.y}) {
      const auto second = Gradients({gradient}, {x})[0];
      REQUIRE(second.valid());
      CheckClose(Value(second, t.given), Numeric(gradient, x, t.given));
    }
  }
  const auto second = Gradients({first[0]}, {t.x})[0];
  const auto third = Gradients({second}, {t.x})[0];
  CheckClose(Value(third, t.given), Numeric(second, t.x, t.given));
}

// Their slices are summed by row before they are joined.
TEST_CASE("gradients of gradients by rows of a table that is read twice") {
  Graph graph;
  const Output table = graph.Variable("table", Zeros({4, 2}, DType::kFloat64));
  const Output w = graph.Placeholder("w", DType::kFloat64, {3, 2});
  const Output u = graph.Placeholder("u", DType::kFloat64, {2, 2, 2});
  const Output some =
      Gather(table, graph.Constant(Tensor::Array<int64_t>({3}, {2, 0, 2})));
  const Output others = Gather(
      table, graph.Constant(Tensor::Array<int32_t>({2, 2}, {1, 2, 1, 1})));
  const Output y = Sum(Tanh(some * w)) + Sum(Square(others * u));
  const RowsGradient g = GradientsByRows({y}, {table}, {table})[0];
  REQUIRE(g.rows.valid());
  REQUIRE(g.values.shape() == Shape{7, 2});
  const Output v = graph.Constant(Tensor::Array<double>(
      {7, 2}, {1, -2, .5, 3, -1, .25, 2, 1.5, -.75, 4, 6, -3, .125, 5}));
  const Given given = {
      {table, Tensor::Array<double>({4, 2}, {.3, -.2, .8, .4, -.5, .7, 9, 9})},
      {w, Tensor::Array<double>({3, 2}, {.5, -1, .25, 2, 1.5, -.75})},
      {u, Tensor::Array<double>({2, 2, 2}, {1, 2, -1, .5, .75, -2, 3, .25})}};
  const Output projected = Sum(g.values * v);
  for (const Output& x : {table, w, u}) {
    CAPTURE(x.name());
    const Output second = Gradients({projected}, {x})[0];
    REQUIRE(second.valid());
    CheckClose(Value(second, given), Numeric(projected, x, given));
  }
}

TEST_CASE("gradients of sums by row, of shapes that are fed") {
  Graph graph;
  const Output rows =
      graph.Placeholder("rows", DType::kInt32, {kUnknown, kUnknown});
  const Shape any{kUnknown, kUnknown, kUnknown};
  const Output values = graph.Placeholder("values", DType::kFloat64, any);
  const Output v = graph.Placeholder("v", DType::kFloat64, any);
  const Output loss = Sum(SumRows(rows, values, 3).sums * v);
  const Output gradient = Gradients({loss}, {values})[0];
  Session session(graph);
  const auto run = [&](const Tensor& of_rows, const Tensor& by) {
    return session.Run({{rows, of_rows}, {values, by}, {v, by}}, gradient);
  };
  // Each has what v has at the first of its row.
  const Tensor by =
      Tensor::Array<double>({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const Tensor got =
      run(Tensor::Array<int32_t>({2, 3}, {2, -1, 2, 0, 2, 0}), by);
  CHECK(got.BitEqual(
      Tensor::Array<double>({2, 3, 2}, {1, 2, 0, 0, 1, 2, 7, 8, 1, 2, 7, 8})));
  const Tensor nothing(DType::kFloat64, {0, 3, 2});
  CHECK(run(Tensor(DType::kInt32, {0, 3}), nothing).shape() == nothing.shape());
}

// sin, cos, -sin, -cos, sin: no repeated differentiation loses a sign.
TEST_CASE("the fourth derivative of the sine") {
  Two t;
  Output y = Sin(t.x);
  for (int i = 0; i < 4; ++i) y = Gradients({y}, {t.x})[0];
  CheckClose(Value(y, t.given), Value(Sin(t.x), t.given));
}

TEST_CASE("a Hessian-vector product through matrices") {
  Graph graph;
  const Output w = graph.Placeholder("w", DType::kFloat64, {2, 2});
  const Output v = graph.Placeholder("v", DType::kFloat64, {2, 2});
  const Output x =
      graph.Constant(Tensor::Array<double>({3, 2}, {.1, -.4, .2, .5, -.6, .3}));
  const Given given = {{w, Tensor::Array<double>({2, 2}, {.5, -1, .25, 2})},
                       {v, Tensor::Array<double>({2, 2}, {1, 2, -1, .5})}};
  const Output loss =
      Sum(LogSoftmax(Tanh(MatMul(x, w))) * Softmax(MatMul(x, w)));
  const auto dw = Gradients({loss}, {w})[0];
  const auto product = Gradients({Sum(dw * v)}, {w})[0];
  CheckClose(Value(product, given), Numeric(Sum(dw * v), w, given));
}

TEST_CASE("errors") {
  Graph graph;
  const Output i = graph.Placeholder("i", DType::kInt32, {2});
  CHECK_THROWS_WITH_AS(
      Gradients({i + 1}, {i}),
      "cannot differentiate 'add': it is int32, wanted a floating-point tensor",
      Error);
  CHECK(Gradients({}, {i}) == std::vector<Output>(1));
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  CHECK_THROWS_WITH_AS(Gradients({Output()}, {x}),
                       "Gradients: y 0 is an empty Output: a handle that no op "
                       "returned",
                       Error);
  CHECK_THROWS_WITH_AS(Gradients({x}, {x, Output()}),
                       "Gradients: x 1 is an empty Output: a handle that no op "
                       "returned",
                       Error);
  Graph other;
  const Output far = other.Placeholder("far", DType::kFloat32, {2});
  CHECK_THROWS_WITH_AS(
      Gradients({x, far}, {x}),
      "Gradients: y 1, 'far', belongs to another graph than 'x'", Error);
}

// 5,000 nodes in a chain: no recursion, no quadratic sums.
TEST_CASE("deep chains") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat64, {1});
  Output y = x;
  for (int i = 0; i < 5000; ++i) y = y * 0.999 + 0.001;
  const Given given = {{x, Vector({0.5})}};
  CheckClose(Value(Gradients({y}, {x})[0], given), {std::pow(0.999, 5000)});
}

}  // namespace
}  // namespace sluice
