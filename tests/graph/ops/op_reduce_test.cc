// Reductions where a probe cannot say what is right: every choice of axes
// against index loops, long sums, empty and special operands, ties.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "engine/threads.h"
#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/reduce.h"
#include "graph/session/session.h"

namespace sluice {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor ValueOf(const Output& output,
               const std::map<Output, Tensor>& given = {}) {
  Result<Tensor> value = Evaluate(output, given);
  REQUIRE_MESSAGE(value.ok(), value.status().message());
  return *value;
}

Tensor Random(DType dtype, const Shape& shape) {
  std::mt19937 random(5);
  Tensor t(DType::kFloat64, shape);
  for (double& v : t.values<double>()) {
    v = std::uniform_real_distribution(-2.0, 2.0)(random);
  }
  return t.Cast(dtype);
}

// The flat output index, with kept dimensions only, of flat input index i.
int64_t TargetOf(int64_t i, const Shape& x, unsigned reduced) {
  int64_t target = 0, stride = 1;
  for (int d = x.rank() - 1; d >= 0; --d) {
    if ((reduced >> d & 1u) == 0) {
      target += i % x[d] * stride;
      stride *= x[d];
    }
    i /= x[d];
  }
  return target;
}

TEST_CASE("reductions over every choice of axes agree with index loops") {
  using Combine = std::function<double(double, double)>;
  struct Case {
    Output (*op)(Operand, const Axes&, bool);
    double start;
    Combine combine;
    std::function<double(double, double)> finish;  // of (total, count)
  };
  auto same = [](double total, double) { return total; };
  const Case cases[] = {
      {Sum, 0, [](double a, double b) { return a + b; }, same},
      {Prod, 1, [](double a, double b) { return a * b; }, same},
      {Mean, 0, [](double a, double b) { return a + b; },
       [](double total, double count) { return total / count; }},
      {Max, -kInf, [](double a, double b) { return std::max(a, b); }, same},
      {Min, kInf, [](double a, double b) { return std::min(a, b); }, same},
      {LogSumExp, 0, [](double a, double b) { return a + std::exp(b); },
       [](double total, double) { return std::log(total); }}};
  for (const Shape& shape :
       {Shape{2, 3, 1, 4, 2}, Shape{70, 3, 130}, Shape{600, 100}}) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Tensor x = Random(dtype, shape);
      for (unsigned mask = 1; mask < 1u << shape.rank(); ++mask) {
        Axes axes;
        int64_t count = 1;
        for (int d = 0; d < shape.rank(); ++d) {
          if ((mask >> d & 1u) == 0) continue;
          axes.push_back(d % 2 ? d : d - shape.rank());
          count *= shape[d];
        }
        for (size_t k = 0; k < std::size(cases); ++k) {
          Graph graph;
          const Tensor y =
              ValueOf(cases[k].op(graph.Constant(x), axes, mask % 2));
          std::vector<double> wanted(x.elements() / count, cases[k].start);
          for (int64_t i = 0; i < x.elements(); ++i) {
            double& w = wanted[TargetOf(i, shape, mask)];
            w = cases[k].combine(w, x.At(i));
          }
          CHECK(y.elements() == static_cast<int64_t>(wanted.size()));
          double worst = 0;
          for (int64_t i = 0; i < y.elements(); ++i) {
            const double w =
                cases[k].finish(wanted[i], static_cast<double>(count));
            worst = std::max(worst, std::abs(y.At(i) - w) / (1 + std::abs(w)));
          }
          CAPTURE(shape.ToString());
          CAPTURE(mask);
          CAPTURE(k);
          CHECK(worst < (dtype == DType::kFloat32 ? 2e-5 : 1e-12));
        }
      }
    }
  }
}

TEST_CASE("sums of ten million float32 elements are accurate") {
  const int64_t n = 10'000'000;
  const double wanted = double(0.1f) * n;
  for (const Shape& shape : {Shape{n}, Shape{n / 10, 10}, Shape{n / 2, 2}}) {
    CAPTURE(shape.ToString());
    Graph graph;
    const Output x = graph.Constant(Tensor::Full(DType::kFloat32, shape, 0.1));
    const Tensor total = ValueOf(Sum(x));
    CHECK(std::abs(total.At(0) - wanted) < 1e-6 * wanted);
    CHECK(std::abs(ValueOf(Mean(x)).At(0) - 0.1) < 1e-7);
    const Tensor columns = ValueOf(Sum(x, {0}));
    const double each = wanted / static_cast<double>(columns.elements());
    CHECK(std::abs(columns.At(0) - each) < 1e-6 * each);
  }
}

// As close as docs/numerics.md promises, where every rounding may err in the
// same direction.
TEST_CASE("sums of very many float64 elements keep their last digits") {
  constexpr double kMost = 64 * std::numeric_limits<double>::epsilon();
  const auto check = [kMost](const Tensor& got, long double wanted) {
    for (int64_t i = 0; i < got.elements(); ++i) {
      const long double error = got.data<double>()[i] - wanted;
      CHECK(static_cast<double>(std::abs(error / wanted)) < kMost);
    }
  };
  for (const double value : {0.1, 0.3}) {
    for (const int64_t n : {int64_t{1} << 14, int64_t{1'000'000}}) {
      CAPTURE(value);
      CAPTURE(n);
      const auto total = static_cast<long double>(n) * value;
      Graph graph;
      const auto constant = [&](const Shape& shape) {
        return graph.Constant(Tensor::Full(DType::kFloat64, shape, value));
      };
      const Output row = constant({n}), columns = constant({n, 2});
      check(ValueOf(Sum(row)), total);
      check(ValueOf(Mean(row)), value);
      check(ValueOf(Sum(columns)), 2 * total);
      check(ValueOf(Sum(columns, {0})), total);
      check(ValueOf(Mean(columns, {0})), value);
      check(ValueOf(SumTo(columns, {2})), total);
    }
  }
}

TEST_CASE("running sums of very many elements keep their last digits") {
  struct Case {
    DType dtype;
    double most;
  };
  for (const auto& [dtype, most] :
       {Case{DType::kFloat64, 64 * std::numeric_limits<double>::epsilon()},
        Case{DType::kFloat32, std::numeric_limits<float>::epsilon()}}) {
    for (const Shape& shape : {Shape{1 << 20}, Shape{1 << 17, 3}}) {
      for (const CumSumOptions& options :
           {CumSumOptions{}, CumSumOptions{.exclusive = true},
            CumSumOptions{.reverse = true}}) {
        Graph graph;
        const Tensor x = Tensor::Full(dtype, shape, 0.1);
        const Tensor y = ValueOf(CumSum(graph.Constant(x), 0, options));
        const int64_t inner = shape.elements() / shape[0];
        const long double value = x.At(0);
        int64_t wrong = 0;
        for (int64_t i = 0; i < y.elements(); ++i) {
          const int64_t place = i / inner;
          const int64_t terms = options.reverse     ? shape[0] - place
                                : options.exclusive ? place
                                                    : place + 1;
          const long double wanted = static_cast<long double>(terms) * value;
          wrong += std::abs(y.At(i) - wanted) <= most * wanted ? 0 : 1;
        }
        CAPTURE(std::string(NameOf(dtype)));
        CAPTURE(shape.ToString());
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("float16 sums do not overflow on the way or stop growing") {
  Graph graph;
  const Output ones = graph.Constant(Tensor::Full(DType::kFloat16, {30000}, 1));
  CHECK(ValueOf(Sum(ones)).At(0) == 30000);
  const Output large =
      graph.Constant(Tensor::Full(DType::kFloat16, {1000}, 6e4));
  CHECK(std::abs(ValueOf(Mean(large)).At(0) - 6e4) < 32);
}

TEST_CASE("the bits do not depend on the number of threads") {
  for (const Shape& shape :
       {Shape{200'000}, Shape{300, 1000}, Shape{50, 60, 70}, Shape{4000, 33}}) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
      Graph graph;
      const Output x = graph.Constant(Random(dtype, shape));
      std::vector<Output> ys = {CumSum(x, 0), CumSum(x, -1), ArgMax(x, 0)};
      for (auto* op : {Sum, Mean, Max, LogSumExp}) {
        for (const Axes& axes : {Axes{}, Axes{0}, Axes{-1}}) {
          ys.push_back(op(x, axes, false));
        }
      }
      for (const Output& y : ys) {
        CAPTURE(y.name());
        SetComputeThreads(1);
        const Tensor one = ValueOf(y);
        SetComputeThreads(2);
        CHECK(one.BitEqual(ValueOf(y)));
      }
    }
  }
  SetComputeThreads(0);
}

TEST_CASE("reductions of nothing") {
  Graph graph;
  const Output x = graph.Constant(Tensor(DType::kFloat32, {0, 3}));
  CHECK(ValueOf(Sum(x, {0})).shape() == Shape{3});
  CHECK(ValueOf(Sum(x, {0})).At(2) == 0);
  CHECK(ValueOf(Prod(x)).At(0) == 1);
  CHECK(ValueOf(Max(x, {0})).At(0) == -kInf);
  CHECK(ValueOf(Min(x, {0})).At(0) == kInf);
  CHECK(std::isnan(ValueOf(Mean(x)).At(0)));
  CHECK(ValueOf(LogSumExp(x)).At(0) == -kInf);
  CHECK(ValueOf(Sum(x, {1})).elements() == 0);
  CHECK(ValueOf(CumSum(x, 0)).elements() == 0);
  CHECK_THROWS_AS(ArgMax(x, 0), Error);
}

TEST_CASE("NaN and infinities") {
  Graph graph;
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    auto constant = [&](std::vector<double> v) {
      return graph.Constant(Tensor::Vector<double>(v).Cast(dtype));
    };
    CHECK(std::isnan(ValueOf(Max(constant({1, kNan, 3}))).At(0)));
    CHECK(std::isnan(ValueOf(Min(constant({1, kNan, 3}))).At(0)));
    CHECK(std::isnan(ValueOf(LogSumExp(constant({1, kNan, 3}))).At(0)));
    CHECK(ValueOf(LogSumExp(constant({-kInf, -kInf}))).At(0) == -kInf);
    CHECK(ValueOf(LogSumExp(constant({kInf, 1, -kInf}))).At(0) == kInf);
    const double large = ValueOf(LogSumExp(constant({1000, 1000}))).At(0);
    CHECK(std::abs(large - 1000.6931471805599) < 1e-4);
    CHECK(ValueOf(ArgMax(constant({1, kNan, 3, kNan}))).IntAt(0) == 1);
    CHECK(ValueOf(ArgMin(constant({2, 1, 1}))).IntAt(0) == 1);
  }
}

TEST_CASE("integer sums wrap around") {
  Graph graph;
  const Output x = graph.Constant(Tensor::Array<int8_t>({3}, {100, 100, 57}));
  CHECK(ValueOf(Sum(x)).At(0) == 1);
}

TEST_CASE("cumulative sums") {
  Graph graph;
  const Output x =
      graph.Constant(Tensor::Array<int32_t>({2, 3}, {1, 2, 3, 4, 5, 6}));
  auto values = [&](int64_t axis, const CumSumOptions& options) {
    const Tensor y = ValueOf(CumSum(x, axis, options));
    return std::vector<int32_t>(y.values<int32_t>().begin(),
                                y.values<int32_t>().end());
  };
  using V = std::vector<int32_t>;
  CHECK(values(1, {}) == V{1, 3, 6, 4, 9, 15});
  CHECK(values(-2, {}) == V{1, 2, 3, 5, 7, 9});
  CHECK(values(1, {.exclusive = true}) == V{0, 1, 3, 0, 4, 9});
  CHECK(values(1, {.exclusive = true, .reverse = true}) ==
        V{5, 3, 0, 11, 6, 0});
}

TEST_CASE("elements that tie share the gradient of a maximum") {
  Graph graph;
  const Output x =
      graph.Constant(Tensor::Array<float>({2, 3}, {3, 1, 3, 2, 2, 2}));
  const Tensor d = ValueOf(Gradients({Max(x, {1})}, {x})[0]);
  CHECK(d.At(0) == 0.5);
  CHECK(d.At(1) == 0);
  CHECK(d.At(4) == doctest::Approx(1.0 / 3));
}

TEST_CASE("gradients over an unknown batch") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 4});
  const Tensor value = Random(DType::kFloat32, {5, 4});
  const std::vector<Output> gradients = {Gradients({Mean(x)}, {x})[0],
                                         Gradients({Sum(x, {0})}, {x})[0],
                                         Gradients({LogSumExp(x)}, {x})[0]};
  Session session(graph);
  const std::vector<Tensor> d = session.Run({{x, value}}, gradients);
  CHECK(d[0].shape() == Shape{5, 4});
  CHECK(d[0].At(7) == doctest::Approx(0.05));
  CHECK(d[1].shape() == Shape{5, 4});
  CHECK(d[1].At(7) == 1);
  double total = 0;
  for (int64_t i = 0; i < 20; ++i) total += d[2].At(i);
  CHECK(total == doctest::Approx(1));
}

TEST_CASE("the gradient of a mean over nothing has a gradient: 0") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 4});
  const Output dy = graph.Placeholder("dy", DType::kFloat32, {4});
  const Output dx = Gradients({Mean(x, {0})}, {x}, {dy})[0];
  const Output ddy = Gradients({dx}, {dy})[0];
  Session session(graph);
  const auto run = [&](int64_t rows) {
    return session.Run({{x, Random(DType::kFloat32, {rows, 4})},
                        {dy, Random(DType::kFloat32, {4})}},
                       ddy);
  };
  CHECK(run(5).At(3) == doctest::Approx(1));
  CHECK(run(0).At(3) == 0);
}

TEST_CASE("a gradient of another shape than the product's is refused") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  const auto add = [&](const Shape& shape) {
    graph.Add({"ProdGrad",
               {graph.Placeholder("dy", DType::kFloat32, shape), x},
               {{"axis", 1}}});
  };
  add({2, 1});
  CHECK_THROWS_AS(add({2}), Error);
  CHECK_THROWS_AS(add({1, 3}), Error);
  CHECK_THROWS_AS(add({2, 3}), Error);
  CHECK_THROWS_AS(add({}), Error);
}

TEST_CASE("no node sums to a shape that is there already") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  const Output y = graph.Placeholder("y", DType::kFloat32, {2, 3});
  CHECK(SumToShapeOf(x, y) == x);
}

TEST_CASE("a shape to sum to has no open dimension") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  CHECK_THROWS_WITH_AS(SumTo(x, {-1, 3}),
                       doctest::Contains("negative dimension -1"), Error);
  // One that only the step knows stays open.
  const Output any = graph.Placeholder("any", DType::kFloat32, {kUnknown, 3});
  CHECK(SumToShapeOf(x, any).shape() == Shape{kUnknown, 3});
}

TEST_CASE("wrong axes are refused") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  CHECK_THROWS_AS(Sum(x, {2}), Error);
  CHECK_THROWS_AS(Sum(x, {1, -1}), Error);
  CHECK_THROWS_AS(CumSum(x, -3), Error);
  CHECK_THROWS_AS(SumTo(x, {2, 2}), Error);
  CHECK_THROWS_AS(Mean(graph.Placeholder("n", DType::kInt32, {2})), Error);
}

}  // namespace
}  // namespace sluice
