// Sums of fused programs where there is nothing to sum, or very much;
// op_table_test has the others.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/kernel_run.h"

namespace sluice {
namespace {

TEST_CASE(
    "sums over no elements are zeros, whichever dimensions they are over") {
  struct Case {
    const char* sum;
    Shape shape, result;
  };
  for (const Case& c :
       {Case{"trailing", {3, 0}, {3}}, {"leading", {0, 3}, {3}}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      KernelSpec spec;
      spec.op = "FusedSum";
      spec.node = "sum";
      spec.inputs = {{dtype, c.shape}};
      spec.outputs = {{dtype, c.shape}, {dtype, c.result}};
      spec.attrs.Set("program", std::string("Square(0)"));
      spec.attrs.Set("outputs", std::vector<int64_t>{1, 1});
      spec.attrs.Set("shape", c.shape);
      spec.attrs.Set("sum", std::string(c.sum));
      spec.attrs.Set("sum_shape", c.result);
      spec.attrs.Set("sum_scale", 0.5);
      const std::vector<Tensor> inputs = {Tensor(dtype, c.shape)};
      for (const KernelDef* def :
           KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
        CAPTURE(c.sum);
        CAPTURE(def->provider);
        const Tensor sums = testing::RunKernel(*def, spec, inputs)[1];
        for (int64_t i = 0; i < 3; ++i) CHECK(sums.At(i) == 0);
      }
    }
  }
}

// A program that is -x of x and -1, by way of so many values at a time that
// only a few rows of them are one tile; its last value.
constexpr int kWideValue = 48;
std::string WideProgram() {
  constexpr int kProducts = 24;
  std::string program = "Mul(0,1)";
  for (int i = 1; i < kProducts; ++i) program += "; Mul(0,1)";
  int largest = 2;
  for (int i = 1; i < kProducts; ++i) {
    program += fmt::format("; Maximum({},{})", largest, 2 + i);
    largest = 1 + kProducts + i;
  }
  CHECK(largest == kWideValue);
  return program;
}

// The inputs repeat, so that there is no large tensor.
TEST_CASE("a sum of very many elements keeps their digits") {
  constexpr int64_t kRows = int64_t{1} << 27, kColumns = 2;
  // Doubles are held to 64 units of their last digit (docs/numerics.md), beyond
  // which one sum of thousands is already.
  constexpr int64_t kDoubleRows = int64_t{1} << 24;
  constexpr double kUnits = 64 * std::numeric_limits<double>::epsilon();
  struct Case {
    DType dtype;
    const char* sum;
    Shape shape, result;
    double limit;  // a piece's own sums of columns lose some in float32
    bool wide = false;
  };
  for (const Case& c :
       {Case{DType::kFloat32, "trailing", {kRows * kColumns}, {}, 2e-6},
        {DType::kFloat32, "leading", {kRows, kColumns}, {kColumns}, 5e-6},
        {DType::kFloat32, "leading", {1 << 18, 33}, {33}, 5e-6, true},
        {DType::kFloat64, "leading", {1 << 18, 33}, {33}, kUnits, true},
        {DType::kFloat64, "trailing", {kDoubleRows * kColumns}, {}, kUnits},
        {DType::kFloat64,
         "leading",
         {kDoubleRows, kColumns},
         {kColumns},
         kUnits}}) {
    KernelSpec spec;
    spec.op = "FusedSum";
    spec.node = "sum";
    spec.inputs.assign(c.wide ? 2 : 1, TensorType{c.dtype, {}});
    spec.outputs = {TensorType{c.dtype, c.result}};
    spec.attrs.Set("program", c.wide ? WideProgram() : std::string("Neg(0)"));
    spec.attrs.Set("outputs", std::vector<int64_t>{c.wide ? kWideValue : 1});
    spec.attrs.Set("shape", c.shape);
    spec.attrs.Set("sum", std::string(c.sum));
    spec.attrs.Set("sum_shape", c.result);
    spec.attrs.Set("sum_scale", 1.0);
    std::vector<Tensor> inputs = {Tensor::Full(c.dtype, {}, -0.1)};
    if (c.wide) inputs.push_back(Tensor::Full(c.dtype, {}, -1));
    const int64_t terms = c.shape.elements() / c.result.elements();
    const auto wanted = static_cast<long double>(terms) * -inputs[0].At(0);
    for (const KernelDef* def :
         KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
      CAPTURE(NameOf(c.dtype));
      CAPTURE(c.sum);
      CAPTURE(def->provider);
      const Tensor sums = testing::RunKernel(*def, spec, inputs)[0];
      for (int64_t i = 0; i < sums.elements(); ++i) {
        const long double error = sums.At(i) - wanted;
        CHECK(static_cast<double>(std::abs(error / wanted)) < c.limit);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
