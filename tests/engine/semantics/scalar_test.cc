#include "engine/semantics/scalar.h"

#include <doctest/doctest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace sluice {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The distance of got from the exact value in units of got's last place.
// Subnormal values may be flushed: any is as good as another.
double UlpError(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e9;
  if (std::abs(exact) < double(FLT_MIN)) {
    return std::abs(got) <= FLT_MIN ? 0 : 1e9;
  }
  const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
  return std::abs(got - exact) / ulp;
}

// Every 997th float, and all that matter specially.
template <typename Visit>
void ForManyFloats(const Visit& visit) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 997) {
    visit(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (float x : {0.0f, -0.0f, 1.0f, -1.0f, kInf, -kInf, kNan, FLT_MIN, FLT_MAX,
                  -FLT_MAX, 88.7f, 88.73f, -87.4f, -103.9f, 1e6f}) {
    visit(x);
  }
}

// The worst error of op against a reference in double, over many floats.
template <typename Op, typename Reference>
void CheckUlp(const Op& op, const Reference& reference, double bound) {
  double worst = 0;
  float at = 0;
  ForManyFloats([&](float x) {
    const double error = UlpError(op(x), reference(double(x)));
    if (error > worst) {
      worst = error;
      at = x;
    }
  });
  INFO(std::string(Op::kName) << " is off by " << worst << " ulp at " << at);
  CHECK(worst <= bound);
}

double SigmoidOf(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST_CASE("float functions against the C library in double") {
  using namespace scalar;  // NOLINT: the functors alone
  CheckUlp(
      Exp(), [](double x) { return std::exp(x); }, 2);
  CheckUlp(
      Expm1(), [](double x) { return std::expm1(x); }, 3);
  CheckUlp(
      Log(), [](double x) { return std::log(x); }, 2);
  CheckUlp(
      Log1p(), [](double x) { return std::log1p(x); }, 3);
  CheckUlp(
      Tanh(), [](double x) { return std::tanh(x); }, 3);
  CheckUlp(Sigmoid(), SigmoidOf, 3);
  CheckUlp(
      Erf(), [](double x) { return std::erf(x); }, 3);
  CheckUlp(
      Sin(), [](double x) { return std::sin(x); }, 1);
  CheckUlp(
      Cos(), [](double x) { return std::cos(x); }, 1);
  CheckUlp(
      Tan(), [](double x) { return std::tan(x); }, 1.5);
  CheckUlp(
      Asin(), [](double x) { return std::asin(x); }, 2);
  CheckUlp(
      Acos(), [](double x) { return std::acos(x); }, 2);
  CheckUlp(
      Atan(), [](double x) { return std::atan(x); }, 2);
  CheckUlp(
      Sinh(), [](double x) { return std::sinh(x); }, 3);
  CheckUlp(
      Cosh(), [](double x) { return std::cosh(x); }, 3);
  CheckUlp(
      Sqrt(), [](double x) { return std::sqrt(x); }, 0.5);
  CheckUlp(
      Rsqrt(), [](double x) { return 1 / std::sqrt(x); }, 1.5);
  CheckUlp(
      Reciprocal(), [](double x) { return 1 / x; }, 1);
  CheckUlp(
      Floor(), [](double x) { return std::floor(x); }, 0);
  CheckUlp(
      Ceil(), [](double x) { return std::ceil(x); }, 0);
  CheckUlp(
      Round(), [](double x) { return std::nearbyint(x); }, 0);
  CheckUlp(
      Softplus(),
      [](double x) {
        return std::isnan(x)
                   ? x
                   : std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);
      },
      3);
  // Below -88 only its size matters; see the next case.
  CheckUlp(
      Silu(),
      [](double x) {
        return x < -88 ? Silu()(static_cast<float>(x)) : x * SigmoidOf(x);
      },
      4);
  CheckUlp(
      Elu(), [](double x) { return x < 0 ? std::expm1(x) : x; }, 3);
}

TEST_CASE("functions with an absolute bound") {
  for (float x = -88; x > -1e30f; x *= 1.001f) {
    CHECK(std::abs(scalar::Silu()(x)) < 1e-35f);
  }
  for (float x = -20; x < 20; x += 1e-3f) {
    const double d = x;
    const double unit = std::max(1.0, std::abs(d)) * FLT_EPSILON;
    const double gelu = d * 0.5 * std::erfc(-d / std::sqrt(2.0));
    CHECK(std::abs(scalar::Gelu()(x) - gelu) < 2 * unit);
    const double u = std::sqrt(2 / M_PI) * (d + 0.044715 * d * d * d);
    CHECK(std::abs(scalar::GeluTanh()(x) - 0.5 * d * (1 + std::tanh(u))) <
          2 * unit);
    CHECK(std::abs(scalar::Softsign()(x) - d / (1 + std::abs(d))) < unit);
  }
}

TEST_CASE("infinity, NaN and zero") {
  using namespace scalar;  // NOLINT
  CHECK(Exp()(-kInf) == 0);
  CHECK(Exp()(kInf) == kInf);
  CHECK(Log()(0.0f) == -kInf);
  CHECK(std::isnan(Log()(-1.0f)));
  CHECK(Log1p()(-1.0f) == -kInf);
  CHECK(Sigmoid()(kInf) == 1);
  CHECK(Sigmoid()(-kInf) == 0);
  CHECK(Tanh()(-kInf) == -1);
  CHECK(Softplus()(-kInf) == 0);
  CHECK(Softplus()(kInf) == kInf);
  CHECK(Softsign()(-kInf) == -1);
  for (float zero : {Gelu()(-kInf), GeluTanh()(-kInf), Silu()(-kInf)}) {
    CHECK(zero == 0);
  }
  for (float x : {Gelu()(kInf), GeluTanh()(kInf), Silu()(kInf)}) {
    CHECK(x == kInf);
  }
  for (float x :
       {Relu()(kNan), Relu6()(kNan), Clip{-1, 1}(kNan), Sign()(kNan),
        Maximum()(kNan, 1.0f), Maximum()(1.0f, kNan), Minimum()(kNan, 1.0f),
        Minimum()(1.0f, kNan), LeakyRelu()(kNan), Elu()(kNan), Selu()(kNan)}) {
    CHECK(std::isnan(x));
  }
  CHECK(std::signbit(Tanh()(-0.0f)));
  CHECK(std::signbit(Sin()(-0.0f)));
  CHECK(std::signbit(Erf()(-0.0f)));
  CHECK(IsNan()(kNan));
  CHECK_FALSE(IsNan()(kInf));
  CHECK(IsInf()(-kInf));
  CHECK(IsFinite()(FLT_MAX));
  CHECK_FALSE(IsFinite()(kNan));
  CHECK_FALSE(IsInf()(3));
  CHECK(Round()(2.5f) == 2);
  CHECK(Round()(-1.5f) == -2);
  CHECK(Round()(7) == 7);
}

TEST_CASE("remainder and floor division, as in Python") {
  using scalar::FloorDiv;
  using scalar::Mod;
  // Values printed by Python 3: (a, b, a // b, a % b).
  struct Row {
    double a, b, quotient, remainder;
  };
  for (const Row& row :
       {Row{7, 3, 2, 1}, Row{-7, 3, -3, 2}, Row{7, -3, -3, -2},
        Row{-7, -3, 2, -1}, Row{6, -3, -2, 0}, Row{5.5, 2, 2, 1.5},
        Row{-5.5, 2, -3, 0.5}, Row{1, 0.1, 9, 0.09999999999999995}}) {
    CHECK(FloorDiv()(row.a, row.b) == row.quotient);
    CHECK(Mod()(row.a, row.b) == doctest::Approx(row.remainder));
    if (row.a == int(row.a) && row.b == int(row.b)) {
      CHECK(FloorDiv()(int(row.a), int(row.b)) == int(row.quotient));
      CHECK(Mod()(int(row.a), int(row.b)) == int(row.remainder));
      const auto a = static_cast<int8_t>(row.a);
      CHECK(FloorDiv()(a, int8_t(row.b)) == int8_t(row.quotient));
    }
  }
  CHECK(FloorDiv()(1.0f, 0.0f) == kInf);
  CHECK(std::isnan(Mod()(1.0f, 0.0f)));
  CHECK(FloorDiv()(-1.0f, kInf) == -1);
}

TEST_CASE("integers wrap, and division by zero gives zero") {
  using namespace scalar;  // NOLINT
  constexpr int kMin = std::numeric_limits<int>::min();
  constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
  CHECK(Add()(std::numeric_limits<int>::max(), 1) == kMin);
  CHECK(Neg()(kMin) == kMin);
  CHECK(Abs()(kMin) == kMin);
  CHECK(Mul()(int64_t{1} << 62, int64_t{4}) == 0);
  CHECK(Square()(int8_t{20}) == -112);  // 400 - 512
  for (int a : {0, 5, -5, kMin}) {
    CHECK(Div()(a, 0) == 0);
    CHECK(FloorDiv()(a, 0) == 0);
    CHECK(Mod()(a, 0) == 0);
  }
  CHECK(Div()(kMin, -1) == kMin);
  CHECK(FloorDiv()(kMin, -1) == kMin);
  CHECK(Mod()(kMin, -1) == 0);
  CHECK(Div()(kMin64, int64_t{-1}) == kMin64);
  CHECK(Mod()(kMin64, int64_t{-1}) == 0);
  CHECK(Div()(uint8_t{200}, uint8_t{255}) == 0);
  CHECK(Mod()(uint8_t{200}, uint8_t{255}) == 200);
  CHECK(FloorDiv()(uint8_t{200}, uint8_t{7}) == 28);
  CHECK(Pow()(3, 4) == 81);
  CHECK(Pow()(-2, 3) == -8);
  CHECK(Pow()(2, -1) == 0);
  CHECK(Pow()(-1, -3) == -1);
  CHECK(Pow()(0, 0) == 1);
  CHECK(Sign()(-9) == -1);
  CHECK(LogicalAnd()(2, 4));
  CHECK_FALSE(LogicalXor()(2, 4));
  CHECK(LogicalNot()(false));
}

// d/dx by central differences in double.
template <typename Fn>
double Slope(const Fn& fn, double x) {
  constexpr double kStep = 1e-5;
  return (fn(x + kStep) - fn(x - kStep)) / (2 * kStep);
}

TEST_CASE("gradients of activations against finite differences") {
  using namespace scalar;  // NOLINT
  const auto check = [](const auto& op, const auto& gradient, bool of_x) {
    for (double x : {-3.1, -1.0, -0.2, 0.3, 1.7, 5.0, 8.0}) {
      const double got = gradient(2.0, of_x ? x : op(x));
      INFO(std::string(gradient.kName) << " at " << x);
      CHECK(got == doctest::Approx(2 * Slope(op, x)).epsilon(1e-6));
      const auto f = static_cast<float>(x);
      CHECK(gradient(2.0f, of_x ? f : op(f)) ==
            doctest::Approx(got).epsilon(1e-5));
    }
  };
  check(Relu(), ReluGrad(), false);
  check(Relu6(), Relu6Grad(), false);
  check(LeakyRelu{0.2}, LeakyReluGrad{0.2}, false);
  check(Elu{1.5}, EluGrad{1.5}, true);
  check(Selu(), SeluGrad(), true);
  check(Sigmoid(), SigmoidGrad(), false);
  check(Tanh(), TanhGrad(), false);
  check(Softplus(), SoftplusGrad(), true);
  check(Silu(), SiluGrad(), true);
  check(Gelu(), GeluGrad(), true);
  check(GeluTanh(), GeluTanhGrad(), true);
  for (float x : {kInf, -kInf, 1e20f, -1e20f}) {
    const float expected = x > 0 ? 1 : 0;
    CHECK(GeluGrad()(1.0f, x) == expected);
    CHECK(GeluTanhGrad()(1.0f, x) == expected);
    CHECK(SiluGrad()(1.0f, x) == expected);
    CHECK(SoftplusGrad()(1.0f, x) == expected);
    CHECK(EluGrad()(1.0f, x) == expected);
  }
}

TEST_CASE("parameters reach an op in the order of its fields") {
  CHECK(scalar::MakeOp<scalar::Clip>(-1, 2)(5.0f) == 2);
  CHECK(scalar::MakeOp<scalar::LeakyRelu>(0.5, 9)(-4.0f) == -2);
  CHECK(scalar::MakeOp<scalar::Neg>(1, 2)(3.0f) == -3);
}

}  // namespace
}  // namespace sluice
