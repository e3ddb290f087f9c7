// Convolutions and pools that are sums of very many terms, of one sign, so that
// a running sum has ever fewer digits for what is added: every kernel against
// the sum.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "graph/compile/evaluate.h"
#include "graph/ops/conv.h"
#include "graph/ops/pool.h"
#include "graph/ops/shape.h"
#include "tests/support/guarded_run.h"

namespace sluice::testing {
namespace {

// As docs/numerics.md promises of float64.
constexpr double kOfDouble = 64 * 0x1p-52;

// Element i of `result` is to be wanted(i), to `tolerance` of that.
void CheckKernels(const Output& result, const std::vector<Tensor>& inputs,
                  const std::function<double(int64_t)>& wanted,
                  double tolerance) {
  const KernelSpec spec = SpecOf(result.node(), true);
  for (const KernelDef* def :
       KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
    INFO(result.node().Describe(), ", ", def->provider);
    const KernelPtr kernel = def->make(spec).ValueOrThrow();
    const GuardedRunResult run = GuardedRun(*kernel, spec, inputs, 0);
    CHECK(run.fault == "");
    const Tensor& got = run.tensors[0];
    double worst = 0;
    for (int64_t i = 0; i < got.elements(); ++i) {
      const double size = std::abs(wanted(i));
      const double error =
          std::abs(got.At(i) - wanted(i)) / (size > 0 ? size : 1);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    CHECK(worst < tolerance);
  }
}

Tensor Filled(const Shape& shape, double value, DType dtype = DType::kFloat32) {
  return Tensor::Full(dtype, shape, value);
}

Tensor DimsOf(const Output& output) {
  return Tensor::Vector(output.shape().dims());
}

// How many windows of so many elements, one step apart, are over an element of
// a line: all of them over its middle, one over its ends.
double WindowsOver(int64_t at, int64_t window) {
  return static_cast<double>(window - std::abs(at - (window - 1)));
}

// A convolution of the graph's.
struct Convolution {
  Graph graph;
  Conv2DOptions options;
  Output x, filter, y, dy;

  Convolution(const Shape& x_shape, const Shape& filter_shape,
              const Conv2DOptions& its, DType dtype = DType::kFloat32)
      : options(its),
        x(graph.Placeholder("x", dtype, x_shape)),
        filter(graph.Placeholder("filter", dtype, filter_shape)),
        y(Conv2D(x, filter, options)),
        dy(graph.Placeholder("dy", dtype, y.shape())) {}

  void CheckFilterGrad(float x_value, float dy_value,
                       const std::function<double(int64_t)>& wanted) {
    CheckKernels(Conv2DBackpropFilter(x, dy, ShapeOf(filter), options),
                 {Filled(x.shape(), x_value), Filled(y.shape(), dy_value),
                  DimsOf(filter)},
                 wanted, 1e-4);
  }
};

TEST_CASE("gradients of filters keep the digits of very many pixels") {
  struct Groups {
    int64_t in, out, groups;
  };
  for (const auto& [in, out, groups] :
       {Groups{2, 4, 2}, {4, 4, 4}, {6, 4, 2}, {2, 3, 1}}) {
    Convolution conv({1, 900, 900, in}, {1, 1, in / groups, out},
                     {.groups = groups});
    conv.CheckFilterGrad(0.1F, 0.7F, [](int64_t) {
      return 900. * 900 * double{0.1F} * double{0.7F};
    });
  }
}

// Of a row of pixels, or a column.
void CheckFilterGradOfLine(bool column) {
  constexpr int64_t kPixels = 262'144;
  for (const int64_t in : {4, 1}) {  // of a group
    const int64_t groups = in == 4 ? 2 : 4, channels = in * groups;
    Convolution conv(
        column ? Shape{1, kPixels, 1, channels}
               : Shape{1, 1, kPixels, channels},
        column ? Shape{3, 1, in, channels} : Shape{1, 3, in, channels},
        {.groups = groups});
    // The first tap and the last are beside the image once.
    conv.CheckFilterGrad(0.1F, 1, [&](int64_t i) {
      const int64_t tap = i / (in * channels);
      return static_cast<double>(kPixels - (tap == 1 ? 0 : 1)) * double{0.1F};
    });
  }
}

TEST_CASE("gradients of filters keep the digits of a long row of pixels") {
  CheckFilterGradOfLine(/*column=*/false);
}

TEST_CASE("gradients of filters keep the digits of a long column of pixels") {
  CheckFilterGradOfLine(/*column=*/true);
}

TEST_CASE(
    "convolutions of many channels, or large windows, keep their digits") {
  const Convolution channels(
      {1, 5, 5, 1024}, {3, 3, 512, 16},
      {.strides = {2, 2}, .padding = Padding::kValid, .groups = 2});
  CheckKernels(
      channels.y,
      {Filled(channels.x.shape(), 0.1F), Filled(channels.filter.shape(), 1)},
      [](int64_t) { return 9 * 512 * double{0.1F}; }, 1e-5);
  const Convolution window({1, 41, 41, 4}, {41, 41, 1, 4},
                           {.padding = Padding::kValid, .groups = 4});
  CheckKernels(
      window.y,
      {Filled(window.x.shape(), 0.1F), Filled(window.filter.shape(), 1)},
      [](int64_t) { return 41 * 41 * double{0.1F}; }, 1e-5);
}

TEST_CASE("convolutions of float64 keep the digits of very many terms") {
  constexpr int64_t kTerms = int64_t{1} << 20;
  constexpr double kWanted = static_cast<double>(kTerms) * 0.1;
  const auto filled = [](const Output& of, double value) {
    return Filled(of.shape(), value, DType::kFloat64);
  };
  const Convolution channels({1, 1, 1, kTerms}, {1, 1, kTerms, 1}, {},
                             DType::kFloat64);
  CheckKernels(
      channels.y, {filled(channels.x, 0.1), filled(channels.filter, 1)},
      [](int64_t) { return kWanted; }, kOfDouble);
  const Convolution pixels({1, 1, kTerms, 1}, {1, 1, 1, 1}, {},
                           DType::kFloat64);
  CheckKernels(
      Conv2DBackpropFilter(pixels.x, pixels.dy, ShapeOf(pixels.filter)),
      {filled(pixels.x, 0.1), filled(pixels.y, 1), DimsOf(pixels.filter)},
      [](int64_t) { return kWanted; }, kOfDouble);
}

TEST_CASE("gradients of images keep the digits of very many channels") {
  const Convolution conv({1, 5, 5, 16}, {3, 3, 8, 1024},
                         {.padding = Padding::kValid, .groups = 2});
  CheckKernels(
      Conv2DBackpropInput(conv.dy, conv.filter, ShapeOf(conv.x), conv.options),
      {Filled(conv.y.shape(), 0.1F), Filled(conv.filter.shape(), 1),
       DimsOf(conv.x)},
      [](int64_t i) {
        const int64_t pixel = i / 16;
        return WindowsOver(pixel / 5, 3) * WindowsOver(pixel % 5, 3) * 512 *
               double{0.1F};
      },
      1e-5);
}

TEST_CASE("gradients of images keep the digits of large windows") {
  constexpr int64_t kWindow = 41, kSize = 2 * kWindow - 1;
  const Convolution conv({1, kSize, kSize, 1}, {kWindow, kWindow, 1, 1},
                         {.padding = Padding::kValid}, DType::kFloat64);
  CheckKernels(
      Conv2DBackpropInput(conv.dy, conv.filter, ShapeOf(conv.x), conv.options),
      {Filled(conv.y.shape(), 0.1, DType::kFloat64),
       Filled(conv.filter.shape(), 1, DType::kFloat64), DimsOf(conv.x)},
      [](int64_t i) {
        return WindowsOver(i / kSize, kWindow) *
               WindowsOver(i % kSize, kWindow) * 0.1;
      },
      kOfDouble);
}

TEST_CASE("gradients of pools keep the digits of very many windows") {
  for (const auto& [tall, wide] :
       {std::pair(int64_t{41}, int64_t{41}), {1, 4096}, {4096, 1}}) {
    CAPTURE(tall);
    const int64_t rows = 2 * tall - 1, columns = 2 * wide - 1;
    const PoolOptions options = {.window = {tall, wide}, .strides = {1, 1}};
    Graph graph;
    const Output x =
        graph.Placeholder("x", DType::kFloat64, {1, rows, columns, 1});
    const Output y = MaxPool(x, options);
    const Output dy = graph.Placeholder("dy", DType::kFloat64, y.shape());
    const Tensor given = Filled(y.shape(), 0.1, DType::kFloat64);
    const auto windows = static_cast<double>(tall * wide);
    // All windows are over the middle, where the largest is.
    const int64_t middle = rows * columns / 2;
    Tensor peak = Tensor::Zeros(DType::kFloat64, x.shape());
    peak.data<double>()[middle] = 9;
    CheckKernels(
        MaxPoolGrad(x, y, dy, options),
        {peak, Filled(y.shape(), 9, DType::kFloat64), given},
        [&](int64_t i) { return i == middle ? windows * 0.1 : 0; }, kOfDouble);
    CheckKernels(
        AvgPoolGrad(dy, ShapeOf(x), options), {given, DimsOf(x)},
        [&, tall = tall, wide = wide](int64_t i) {
          return WindowsOver(i / columns, tall) *
                 WindowsOver(i % columns, wide) * (0.1 / windows);
        },
        kOfDouble);
  }
}

}  // namespace
}  // namespace sluice::testing
