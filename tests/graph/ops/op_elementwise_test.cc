// Elementwise ops where a probe cannot say what is right: broadcasting against
// index loops, edge values, operators and their messages.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/activation.h"
#include "graph/ops/elementwise.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::ErrorOf;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor ValueOf(const Output& output,
               const std::map<Output, Tensor>& given = {}) {
  Result<Tensor> value = Evaluate(output, given);
  REQUIRE_MESSAGE(value.ok(), value.status().message());
  return *value;
}

template <typename T>
Tensor Random(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  Tensor t(DTypeOf<T>::value, shape);
  for (T& v : t.values<T>()) v = static_cast<T>(int(random() % 19) - 9);
  return t;
}

// The element of x that broadcasting to `shape` puts at flat index i.
int64_t SourceOf(int64_t i, const Shape& shape, const Shape& x) {
  int64_t source = 0, stride = 1;
  for (int d = 1; d <= shape.rank(); ++d) {
    const int64_t at = i % shape[-d];
    i /= shape[-d];
    if (d > x.rank()) continue;
    if (x[-d] != 1) source += at * stride;
    stride *= x[-d];
  }
  return source;
}

TEST_CASE("broadcasting agrees with index loops") {
  const Shape pairs[][2] = {
      {{}, {}},
      {{1, 1}, {1}},
      {{3, 4}, {3, 4}},
      {{2, 3, 4}, {4}},
      {{2, 3, 4}, {3, 1}},
      {{2, 1, 4}, {1, 3, 1}},
      {{2, 1, 3, 1, 2}, {3, 1, 4, 1}},
      {{1, 5, 1, 3}, {2, 1, 2, 1}},
      {{2, 2, 2, 2, 2, 2, 2, 2}, {2, 1, 1, 2, 2, 1, 2}},
      {{0, 3}, {3}},
      {{300, 1, 70}, {40, 1}},  // more than one piece of parallel work
      {{50000}, {}},
      {{7, 5000}, {7, 1}},
  };
  for (const auto& [a_shape, b_shape] : pairs) {
    CAPTURE(a_shape.ToString());
    CAPTURE(b_shape.ToString());
    Graph graph;
    const Tensor a = Random<float>(a_shape, 1), b = Random<float>(b_shape, 2);
    const Output in_a = graph.Constant(a), in_b = graph.Constant(b);
    const Tensor sum = ValueOf(Sub(in_a, in_b));
    const Tensor less = ValueOf(Less(in_b, in_a));
    const Tensor ints =
        ValueOf(Cast(in_b, DType::kInt64) - Cast(in_a, DType::kInt64));
    const Tensor chosen = ValueOf(Select(Greater(in_b, 0), in_a, in_b));
    const Shape shape = *BroadcastShapes(a_shape, b_shape);
    CHECK(sum.shape() == shape);
    int64_t wrong = 0;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const double x = a.At(SourceOf(i, shape, a_shape));
      const double y = b.At(SourceOf(i, shape, b_shape));
      wrong += sum.At(i) != x - y;
      wrong += less.At(i) != (y < x);
      wrong += ints.At(i) != y - x;
      wrong += chosen.At(i) != (y > 0 ? x : y);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the three operands of Select broadcast together") {
  const Shape shapes[][3] = {{{2, 1, 1}, {3, 1}, {4}},
                             {{}, {2, 3}, {3}},
                             {{2, 3}, {}, {}},
                             {{3}, {2, 1}, {2, 3}},
                             {{40, 1, 70}, {30, 1}, {}}};
  for (const auto& s : shapes) {
    Graph graph;
    const Tensor c = Random<float>(s[0], 1), a = Random<float>(s[1], 2),
                 b = Random<float>(s[2], 3);
    const Tensor y = ValueOf(Select(Cast(graph.Constant(c), DType::kBool),
                                    graph.Constant(a), graph.Constant(b)));
    const Shape shape = *BroadcastShapes(*BroadcastShapes(s[0], s[1]), s[2]);
    CHECK(y.shape() == shape);
    int64_t wrong = 0;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const double wanted = c.At(SourceOf(i, shape, s[0])) != 0
                                ? a.At(SourceOf(i, shape, s[1]))
                                : b.At(SourceOf(i, shape, s[2]));
      wrong += y.At(i) != wanted;
    }
    CHECK(wrong == 0);
  }
}

// op(a, b) of two scalars of one dtype.
template <typename T>
T Of(Output (*op)(Operand, Operand), T a, T b) {
  Graph graph;
  const Tensor y = ValueOf(
      op(graph.Constant(Tensor::Scalar(a)), graph.Constant(Tensor::Scalar(b))));
  return *y.data<T>();
}

TEST_CASE("integer division and powers") {
  CHECK(Of<int32_t>(Div, -7, 2) == -3);
  CHECK(Of<int32_t>(FloorDiv, -7, 2) == -4);
  CHECK(Of<int32_t>(Mod, -7, 2) == 1);
  CHECK(Of<int32_t>(Mod, 7, -2) == -1);
  CHECK(Of<int32_t>(Div, 5, 0) == 0);
  CHECK(Of<int64_t>(FloorDiv, -5, 0) == 0);
  CHECK(Of<int64_t>(Mod, 5, 0) == 0);
  const int64_t least = std::numeric_limits<int64_t>::lowest();
  CHECK(Of<int64_t>(Div, least, -1) == least);
  CHECK(Of<int64_t>(Mod, least, -1) == 0);
  CHECK(Of<int32_t>(Pow, -3, 3) == -27);
  CHECK(Of<int32_t>(Pow, 2, -1) == 0);
  CHECK(Of<int32_t>(Pow, -1, -3) == -1);
  CHECK(Of<int8_t>(Add, 127, 1) == -128);
  CHECK(Of<uint8_t>(Sub, 0, 1) == 255);
}

TEST_CASE("floating-point remainders and NaN") {
  CHECK(Of<double>(Mod, -7.5, 2) == 0.5);
  CHECK(Of<double>(FloorDiv, -7.5, 2) == -4);
  CHECK(std::isnan(Of<double>(Maximum, kNan, 1)));
  CHECK(std::isnan(Of<double>(Maximum, 1, kNan)));
  CHECK(std::isnan(Of<double>(Minimum, kNan, 1)));
  CHECK(std::isnan(Of<float>(Minimum, 1, float(kNan))));
}

template <typename To>
std::vector<To> Converted(const std::vector<double>& from) {
  Graph graph;
  const Tensor x = Tensor::Vector<double>(from);
  const Tensor y = ValueOf(Cast(graph.Constant(x), DTypeOf<To>::value));
  return {y.values<To>().begin(), y.values<To>().end()};
}

TEST_CASE("casts from floats saturate") {
  using V = std::vector<double>;
  const V edges = {kInf, -kInf, kNan, 1e30, -1e30, 127.9, 128, -128.9, -129};
  CHECK(Converted<int8_t>(edges) ==
        std::vector<int8_t>{127, -128, 0, 127, -128, 127, 127, -128, -128});
  CHECK(Converted<uint8_t>(V{-1, -0.5, 255.5, 256}) ==
        std::vector<uint8_t>{0, 0, 255, 255});
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(Converted<int64_t>(V{9.3e18, 9223372036854774784.0, -9.3e18}) ==
        std::vector<int64_t>{most, 9223372036854774784, -most - 1});
  CHECK(Converted<bool>(V{0, -0.0, 0.5, kNan}) ==
        std::vector<bool>{false, false, true, true});
}

// Every bit pattern of a half type; of the others the smallest numbers of each
// size, those between, and the edges of their subnormals.
template <typename T>
std::vector<T> SmallNumbers() {
  using Bits = std::conditional_t<
      sizeof(T) == 2, uint16_t,
      std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  std::vector<T> x;
  const auto add = [&](Bits bits) {
    x.push_back(std::bit_cast<T>(bits));
    x.push_back(std::bit_cast<T>(
        static_cast<Bits>(bits | Bits(1) << (8 * sizeof(T) - 1))));
  };
  if constexpr (sizeof(T) == 2) {
    for (int bits = 0; bits < 1 << 15; ++bits) add(static_cast<Bits>(bits));
  } else {
    for (size_t bit = 0; bit + 1 < 8 * sizeof(T); ++bit) {
      const Bits power = Bits(1) << bit;
      for (Bits bits : {power, power + 1, power - 1, power | power >> 1}) {
        add(bits);
      }
    }
    for (double v = 1e-300; v < 1; v *= 1.37) {
      add(std::bit_cast<Bits>(static_cast<T>(v)));
    }
  }
  return x;
}

template <typename To, typename From>
void CheckCastKeepsSubnormals() {
  const std::vector<From> from = SmallNumbers<From>();
  Graph graph;
  const Tensor x = Tensor::Vector<From>(from);
  const Tensor y = ValueOf(Cast(graph.Constant(x), DTypeOf<To>::value));
  int wrong = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    // Here subnormal numbers count.
    To wanted;
    if constexpr (std::is_same_v<To, From>) {
      wanted = from[i];
    } else {
      wanted = To(static_cast<ComputeType<To>>(
          static_cast<ComputeType<From>>(from[i])));
    }
    if (std::memcmp(&y.data<To>()[i], &wanted, sizeof(To)) != 0) ++wrong;
  }
  CAPTURE(NameOf(DTypeOf<From>::value));
  CAPTURE(NameOf(DTypeOf<To>::value));
  CHECK(wrong == 0);
}

template <typename From>
void CheckCastsKeepSubnormals() {
  CheckCastKeepsSubnormals<float, From>();
  CheckCastKeepsSubnormals<double, From>();
  CheckCastKeepsSubnormals<Half, From>();
  CheckCastKeepsSubnormals<BFloat16, From>();
}

TEST_CASE("casts keep subnormal numbers") {
  CheckCastsKeepSubnormals<float>();
  CheckCastsKeepSubnormals<double>();
  CheckCastsKeepSubnormals<Half>();
  CheckCastsKeepSubnormals<BFloat16>();
  Graph graph;
  const Output least = graph.Constant(Tensor::Vector<float>(
      std::vector<float>{std::numeric_limits<float>::denorm_min(), 0}));
  const Tensor is_not_zero = ValueOf(Cast(least, DType::kBool));
  CHECK(is_not_zero.IntAt(0) == 1);
  CHECK(is_not_zero.IntAt(1) == 0);
}

// They may count as 0, but Sign has no other values than these.
TEST_CASE("the sign of a subnormal number is -1, 0 or 1") {
  for (const auto& [dtype, tiny] :
       {std::pair(DType::kFloat64, 1e-310), std::pair(DType::kFloat32, 1e-40),
        std::pair(DType::kBFloat16, 1e-39), std::pair(DType::kFloat16, 1e-7)}) {
    Graph graph;
    const Output x = graph.Placeholder("x", dtype, {kUnknown});
    std::vector<double> values;  // enough for whole vectors and what is left
    for (int i = 0; i < 37; ++i) values.push_back(i % 2 == 0 ? tiny : -tiny);
    const Output sign = Sign(x);
    // By itself, and in a fused program.
    const std::vector<Tensor> got = Session(graph).Run(
        {{x, Tensor::Array<double>({37}, values).Cast(dtype)}},
        std::vector<Output>{sign, Neg(sign) + 2});
    CAPTURE(NameOf(dtype));
    for (int64_t i = 0; i < 37; ++i) {
      const double s = got[0].At(i);
      CHECK((s == 0 || s == (i % 2 == 0 ? 1 : -1)));
      CHECK((got[1].At(i) == 2 || got[1].At(i) == 1 || got[1].At(i) == 3));
    }
  }
}

TEST_CASE("clip keeps to an integer's range") {
  Graph graph;
  const Output x = graph.Constant(Tensor::Array<int8_t>({3}, {-128, 5, 127}));
  const Tensor y = ValueOf(Clip(x, -INFINITY, 100));
  CHECK(y.At(0) == -128);
  CHECK(y.At(1) == 5);
  CHECK(y.At(2) == 100);
  CHECK_THROWS_AS(Clip(x, 2, 1), Error);
  CHECK_THROWS_AS(Clip(x, -1e9, 100), Error);  // int8 cannot hold that
}

TEST_CASE("a float's clip bears any bounds but NaN, and so does its gradient") {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    Graph graph;
    const Output x =
        graph.Constant(Tensor::Array<float>({3}, {-3, 0, 9}).Cast(dtype), "x");
    const double huge = std::numeric_limits<double>::max();
    const Output y = Clip(x, 0, huge);
    const Tensor dx = ValueOf(Gradients({y}, {x})[0]);
    CHECK(ValueOf(y).At(2) == 9);
    CHECK(dx.At(0) == 0);
    CHECK(dx.At(1) == 1);
    CHECK(dx.At(2) == 1);
    CHECK(ValueOf(Clip(x, -huge, std::numeric_limits<int64_t>::max())).At(0) ==
          -3);
    CHECK_THROWS_AS(Clip(x, std::nan(""), 1), Error);
    CHECK_THROWS_AS(Clip(x, 0, std::nan("")), Error);
  }
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kInt64, {1});
  const int64_t beyond = (int64_t{1} << 53) + 1;
  CHECK_THROWS_AS(Clip(x, beyond + 1, beyond), Error);
}

TEST_CASE("operators take tensors and numbers") {
  Graph graph;
  const Output x = graph.Constant(Tensor::Array<float>({2}, {1, -2}));
  const Tensor y = ValueOf(1 - x * 2 / 4 + -x);
  CHECK(y.dtype() == DType::kFloat32);
  CHECK(y.At(0) == -0.5);
  CHECK(y.At(1) == 4);
  CHECK_THROWS_AS(Add(1, 2), Error);
}

TEST_CASE("a wrong operand is reported at the caller's line") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  const Output w = graph.Placeholder("w", DType::kFloat32, {4});
  const Output n = graph.Placeholder("n", DType::kInt32, {3});
  const int line = __LINE__ + 1;
  const std::string shapes = ErrorOf([&] { x + w; });
  CAPTURE(shapes);
  CHECK(shapes.find("Add 'add'") != shapes.npos);
  CHECK(shapes.find("[2,3]") != shapes.npos);
  CHECK(shapes.find("[4]") != shapes.npos);
  CHECK(shapes.find("op_elementwise_test.cc:" + std::to_string(line)) !=
        shapes.npos);
  const std::string dtypes = ErrorOf([&] { x* n; });
  CAPTURE(dtypes);
  CHECK(dtypes.find("float32") != dtypes.npos);
  CHECK(dtypes.find("int32") != dtypes.npos);
}

TEST_CASE("gradients undo broadcasting over an unknown batch") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3});
  const Output b = graph.Placeholder("b", DType::kFloat32, {3});
  const std::vector<Output> d = Gradients({x * b}, {x, b});
  Session session(graph);
  const Tensor gx =
      session.Run({{x, Tensor::Array<float>({2, 3}, {1, 2, 3, 4, 5, 6})},
                   {b, Tensor::Array<float>({3}, {1, 1, 1})}},
                  d[1]);
  CHECK(gx.shape() == Shape{3});
  CHECK(gx.At(0) == 5);
  CHECK(gx.At(2) == 9);
}

TEST_CASE("the gradient of a power at zero is finite") {
  Graph graph;
  const Output x = graph.Constant(Tensor::Array<double>({2}, {0, -3}));
  const Output d = Gradients({Pow(x, 2)}, {x})[0];
  CHECK(ValueOf(d).At(0) == 0);
  CHECK(ValueOf(d).At(1) == -6);
  const Output none = Gradients({Pow(x, 0)}, {x})[0];
  CHECK(ValueOf(none).At(0) == 0);
}

// The largest relative error of d f(x) / dx against `exact` over many x < 0.
template <typename Exact>
double WorstSlope(DType dtype, const std::function<Output(Output)>& f,
                  const Exact& exact) {
  Tensor x(DType::kFloat64, {400});
  for (int i = 0; i < 400; ++i) x.data<double>()[i] = -0.01 - i * 0.2;
  x = x.Cast(dtype);
  Graph graph;
  const Output in = graph.Constant(x);
  const Tensor dx = ValueOf(Gradients({f(in)}, {in})[0]);
  double worst = 0;
  for (int i = 0; i < 400; ++i) {
    const double wanted = exact(x.At(i));
    // A half's smallest normal number.
    if (dtype == DType::kFloat16 && wanted < 0x1p-14) continue;
    worst = std::max(worst, std::abs(dx.At(i) - wanted) / wanted);
  }
  return worst;
}

TEST_CASE("gradients of Elu and Selu are precise far below zero") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    CAPTURE(NameOf(dtype));
    const double unit = dtype == DType::kFloat64   ? 0x1p-52
                        : dtype == DType::kFloat32 ? 0x1p-23
                        : dtype == DType::kFloat16 ? 0x1p-10
                                                   : 0x1p-7;
    const double bound = (IsHalf(dtype) ? 1 : 4) * unit;
    CHECK(WorstSlope(
              dtype, [](Output x) { return Elu(x, 0.75); },
              [](double x) { return 0.75 * std::exp(x); }) < bound);
    CHECK(WorstSlope(
              dtype, [](Output x) { return Selu(x); },
              [](double x) {
                return 1.0507009873554805 * 1.6732632423543772 * std::exp(x);
              }) < bound);
  }
}

TEST_CASE("a term may be added several times") {
  Graph graph;
  const Output x = graph.Constant(Tensor::Array<float>({2}, {1, 2}));
  CHECK(ValueOf(AddN({x, x, x})).At(1) == 6);
  CHECK_THROWS_AS(AddN({}), Error);
}

TEST_CASE("activations at extreme arguments are not NaN") {
  Graph graph;
  const Output x =
      graph.Constant(Tensor::Array<float>({4}, {-1e30f, -200, 200, 1e30f}));
  Output (*const functions[])(Operand) = {Sigmoid, Softplus, Softsign, Relu,
                                          Relu6,   Selu,     Silu,     Tanh};
  std::vector<Output> ys;
  for (auto* f : functions) ys.push_back(f(x));
  ys.push_back(Gelu(x));
  ys.push_back(Gelu(x, /*approximate=*/true));
  for (const Output& y : ys) {
    CAPTURE(y.name());
    const Tensor value = ValueOf(y);
    const Tensor slope = ValueOf(Gradients({y}, {x})[0]);
    for (int i = 0; i < 4; ++i) {
      CHECK(std::isfinite(value.At(i)));
      CHECK(std::isfinite(slope.At(i)));
    }
  }
}

}  // namespace
}  // namespace sluice
