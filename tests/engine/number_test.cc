// Numbers beside tensors: exact, or refused by name.
#include "engine/number.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::ErrorOf;

constexpr int64_t kBeyondDouble = (int64_t{1} << 53) + 1;

// Numbers with their values in a type that is exact for all of them.
struct Sample {
  Number number;
  long double value;
};
const Sample kSamples[] = {
    {0, 0},
    {-0.0, 0},
    {1, 1},
    {true, 1},
    {-1, -1},
    {1.5, 1.5L},
    {7.5, 7.5L},
    {-0.25, -0.25L},
    {127, 127},
    {128, 128},
    {-128, -128},
    {-129, -129},
    {255u, 255},
    {256, 256},
    {3e9, 3e9L},
    {-3e9, -3e9L},
    {2147483647, 2147483647.0L},
    {2147483648.0, 2147483648.0L},
    {kBeyondDouble, 9007199254740993.0L},
    {-kBeyondDouble, -9007199254740993.0L},
    {std::numeric_limits<int64_t>::max(), 9223372036854775807.0L},
    {std::numeric_limits<int64_t>::min(), -9223372036854775808.0L},
    {std::numeric_limits<uint64_t>::max(), 18446744073709551616.0L},
    {1e300, 1e300L},
    {std::numeric_limits<double>::infinity(), INFINITY},
    {std::nan(""), NAN},
};

template <typename T>
bool IntegerHolds(long double v) {
  return v == std::floor(v) && v >= std::numeric_limits<T>::min() &&
         v <= std::numeric_limits<T>::max();
}

bool Holds(DType dtype, long double v) {
  switch (dtype) {
    case DType::kBool:
      return v == 0 || v == 1;
    case DType::kInt8:
      return IntegerHolds<int8_t>(v);
    case DType::kUInt8:
      return IntegerHolds<uint8_t>(v);
    case DType::kInt32:
      return IntegerHolds<int32_t>(v);
    case DType::kInt64:
      return IntegerHolds<int64_t>(v);
    case DType::kFloat16:
      return !std::isfinite(v) || std::abs(v) < 65520;
    case DType::kFloat32:
    case DType::kBFloat16:
      return !std::isfinite(v) || std::abs(v) < 3.39e38L;
    default:
      return true;
  }
}

TEST_CASE("a number becomes an element, or an error that names both") {
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (const Sample& s : kSamples) {
      CAPTURE(std::string(NameOf(dtype)));
      CAPTURE(s.number.ToString());
      const Status held = CheckHolds(dtype, s.number);
      CHECK(held.ok() == Holds(dtype, s.value));
      if (held.ok()) {
        const Tensor t = Tensor::Full(dtype, {}, s.number);
        if (!IsFloating(dtype)) {
          CHECK(t.IntAt(0) == static_cast<int64_t>(s.value));
        }
        if (dtype == DType::kFloat64 && !std::isnan(s.value)) {
          CHECK(t.At(0) == static_cast<double>(s.value));
        }
      } else {
        CHECK(held.message().find(s.number.ToString()) != std::string::npos);
        CHECK(held.message().find(NameOf(dtype)) != std::string::npos);
        CHECK_THROWS_AS(Tensor::Full(dtype, {}, s.number), Error);
      }
    }
  }
}

int64_t ValueOf(const Output& y, const Output& x, const Tensor& value) {
  return Session(y.graph()).Run({{x, value}}, y).IntAt(0);
}

TEST_CASE("what used to be cut in silence is refused") {
  Graph graph;
  const Output i32 = graph.Placeholder("i32", DType::kInt32, {1});
  const Output u8 = graph.Placeholder("u8", DType::kUInt8, {1});
  const Output half = graph.Placeholder("half", DType::kFloat16, {1});
  const auto refused = [](auto build, const char* number, const char* dtype) {
    const std::string text = ErrorOf(build);
    CHECK(text.find(number) != text.npos);
    CHECK(text.find(dtype) != text.npos);
    CHECK(text.find("number_test.cc") != text.npos);
  };
  refused([&] { Less(i32, 7.5); }, "7.5", "int32");
  refused([&] { i32 * 1.5; }, "1.5", "int32");
  refused([&] { u8 + (-1); }, "-1", "uint8");
  refused([&] { i32 + 3e9; }, "3000000000", "int32");
  refused([&] { half * 70000; }, "70000", "float16");
  refused([&] { Clip(i32, 0.5, 7); }, "0.5", "int32");
  refused([&] { Clip(u8, 0, 256); }, "256", "uint8");
  refused([&] { Pad(i32, {1, 1}, 0.5); }, "0.5", "int32");
  refused([&] { Pad(half, {1, 1}, 1e300); }, "1e+300", "float16");
  refused([&] { RandomUniform(graph, {2}, 0.2, 0.8, DType::kInt32); }, "0.2",
          "int32");
  refused([&] { RandomUniform(graph, {2}, 0, 3e9, DType::kInt32); },
          "2999999999", "int32");
  refused([&] { OneHot(i32, 3, {.on = 300, .dtype = DType::kUInt8}); }, "300",
          "uint8");
  refused([&] { Fill(graph, {2}, 1.5, DType::kInt64); }, "1.5", "int64");
  refused([&] { graph.Variable("v", Filled(1e9, {2}, DType::kInt8)); },
          "1000000000", "int8");
  refused([&] { Select(Greater(i32, 0), i32, 0.5); }, "0.5", "int32");
}

TEST_CASE("integers beyond 2^53 keep their last bit") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kInt64, {1});
  const auto value = [&](const Output& y, int64_t v) {
    return ValueOf(y, x, Tensor::Array<int64_t>({1}, {v}));
  };
  CHECK(value(x + kBeyondDouble, 1) == kBeyondDouble + 1);
  CHECK(value(x * kBeyondDouble, 3) == 3 * kBeyondDouble);
  CHECK(value(Equal(x, kBeyondDouble), kBeyondDouble - 1) == 0);
  CHECK(value(Clip(x, kBeyondDouble, kBeyondDouble + 4), 7) == kBeyondDouble);
  CHECK(value(Clip(x, -5, kBeyondDouble), kBeyondDouble + 9) == kBeyondDouble);
  CHECK(value(Clip(x, -INFINITY, 3), kBeyondDouble) == 3);
  CHECK(value(Clip(x, 3, INFINITY), kBeyondDouble) == kBeyondDouble);
  CHECK(value(Clip(x, -INFINITY, INFINITY), -kBeyondDouble) == -kBeyondDouble);
  CHECK(value(Pad(x, {1, 0}, kBeyondDouble), 7) == kBeyondDouble);
  CHECK(value(OneHot(x, 1, {.on = kBeyondDouble, .dtype = DType::kInt64}), 0) ==
        kBeyondDouble);
  CHECK(value(x + Fill(graph, {1}, kBeyondDouble, DType::kInt64), 0) ==
        kBeyondDouble);
  const Output start =
      graph.Constant(Tensor::Scalar<int64_t>(kBeyondDouble), "start");
  const Output range = Range(start, kBeyondDouble + 3, 2);
  CHECK(range.shape() == Shape{2});
  CHECK(value(x + range, 0) == kBeyondDouble);
}

TEST_CASE("bounds of Clip that are the wrong infinity") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kInt32, {1});
  CHECK_THROWS_AS(Clip(x, INFINITY, INFINITY), Error);
  CHECK_THROWS_AS(Clip(x, 0, -INFINITY), Error);
}

TEST_CASE("an empty handle is not the number 0") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1});
  const Output none;
  for (const std::string& text :
       {ErrorOf([&] { x + none; }), ErrorOf([&] { none + x; }),
        ErrorOf([&] { none + none; }), ErrorOf([&] { Exp(none); }),
        ErrorOf([&] { none + 1; })}) {
    CHECK(text.find("empty Output") != text.npos);
    CHECK(text.find("number 0") == text.npos);
  }
}

}  // namespace
}  // namespace sluice
