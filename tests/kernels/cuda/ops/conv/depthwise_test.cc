// The CUDA kernels of depthwise convolutions, emulated, against the CPU's.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/ops/conv/conv_depthwise.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

struct ConvCase {
  DType dtype = DType::kFloat32;
  int64_t images = 2, height = 7, width = 6, channels = 8, outputs = 1;
  std::vector<int64_t> window = {3, 2}, strides = {2, 1}, dilations = {1, 2};
  std::vector<int64_t> padding = {1, 0, 2, 1};
  size_t skip = 0;

  Shape x() const { return {images, height, width, channels}; }
  Shape filter() const { return {window[0], window[1], channels, outputs}; }
  Attributes attrs() const {
    return {{"strides", strides},
            {"dilations", dilations},
            {"padding", "EXPLICIT"},
            {"explicit_padding", padding}};
  }
  ConvGeometry geometry() const {
    KernelSpec spec{.op = "DepthwiseConv2D", .attrs = attrs()};
    spec.inputs = {{dtype, x()}, {dtype, filter()}};
    return ConvGeometryOf(spec).ValueOrThrow();
  }
  Shape y() const {
    const ConvGeometry g = geometry();
    return {images, g.h.output, g.w.output, channels * outputs};
  }
};

Tensor Dims(const Shape& shape) {
  return Tensor::Vector<int64_t>(
      std::vector<int64_t>(shape.begin(), shape.end()));
}

// The result of the CPU's kernel in float64, rounded: the CPU's own sums of
// half types are.
void Check(const ConvCase& c, ConvPass pass, const Tensor& a, const Tensor& b,
           const Shape& result, double terms) {
  const std::string op = std::string("DepthwiseConv2D") +
                         (pass == ConvPass::kForward ? ""
                          : pass == ConvPass::kInput ? "BackpropInput"
                                                     : "BackpropFilter");
  std::vector<Tensor> inputs = {a.Cast(DType::kFloat64),
                                b.Cast(DType::kFloat64)};
  if (pass != ConvPass::kForward) inputs.push_back(Dims(result));
  const Tensor wanted =
      CpuResults(op, c.attrs(), inputs, {{DType::kFloat64, result}})
          .front()
          .Cast(c.dtype);
  const ConvGeometry g = c.geometry();
  const Tensor got =
      InEveryOrder([&] {
        const DeviceBuffer left(a, c.skip), right(b, c.skip);
        const DeviceBuffer out(wanted.bytes(), c.skip);
        const DeviceBuffer workspace(DepthwiseWorkspace(g, pass, c.dtype));
        CHECK(FindDepthwise(pass, c.dtype)(g, left.get(), right.get(),
                                           out.get(), workspace.get(), nullptr)
                  .ok());
        return std::vector{out.Read(c.dtype, result)};
      }).front();
  // A unit for the result, and one of float for each term of about 1.
  const bool half = SizeOf(c.dtype) == 2;
  const std::string difference =
      Difference(got, wanted, 2, half ? 1 : std::max(1.0, terms / 4));
  CHECK_MESSAGE(difference.empty(), op, " of ", c.x().ToString(), ": ",
                difference);
}

void CheckAll(const ConvCase& c) {
  const Tensor x = RandomTensor(c.dtype, c.x(), -1, 1);
  const Tensor filter = RandomTensor(c.dtype, c.filter(), -1, 1, 2);
  const Tensor dy = RandomTensor(c.dtype, c.y(), -1, 1, 3);
  const double taps = static_cast<double>(c.geometry().taps());
  Check(c, ConvPass::kForward, x, filter, c.y(), taps);
  Check(c, ConvPass::kInput, dy, filter, c.x(),
        taps * static_cast<double>(c.outputs));
  Check(c, ConvPass::kFilter, x, dy, c.filter(),
        static_cast<double>(c.y().elements(0, 3)));
}

TEST_CASE("depthwise convolutions and their gradients") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    CheckAll({.dtype = dtype});
    CheckAll({.dtype = dtype, .channels = 5});
    CheckAll({.dtype = dtype, .channels = 8, .outputs = 2});
    CheckAll({.dtype = dtype, .channels = 3, .outputs = 3});
    CheckAll({.dtype = dtype, .channels = 16, .skip = SizeOf(dtype)});
  }
}

TEST_CASE("several blocks of pixels and segments of the filter's sums") {
  CheckAll({.images = 3,
            .height = 21,
            .width = 22,
            .channels = 4,
            .window = {3, 3},
            .strides = {1, 1},
            .dilations = {1, 1},
            .padding = {1, 1, 1, 1}});
  CheckAll({.images = 5, .height = 19, .width = 20, .channels = 2});
}

TEST_CASE("strides that leave pixels out") {
  CheckAll({.window = {1, 1},
            .strides = {3, 2},
            .dilations = {1, 1},
            .padding = {0, 0, 0, 0}});
}

// One tap of one channel: as many segments as there may be, of 4096 pixels.
TEST_CASE("filters' gradients keep the digits of very many pixels") {
  const ConvCase c = {.images = 1,
                      .height = 2048,
                      .width = 2048,
                      .channels = 1,
                      .window = {1, 1},
                      .strides = {1, 1},
                      .dilations = {1, 1},
                      .padding = {0, 0, 0, 0}};
  const DeviceBuffer x(Tensor::Full(c.dtype, c.x(), 0.1F));
  const DeviceBuffer dy(Tensor::Full(c.dtype, c.y(), 1));
  const DeviceBuffer out(4);
  const DeviceBuffer workspace(
      DepthwiseWorkspace(c.geometry(), ConvPass::kFilter, c.dtype));
  CHECK(FindDepthwise(ConvPass::kFilter, c.dtype)(c.geometry(), x.get(),
                                                  dy.get(), out.get(),
                                                  workspace.get(), nullptr)
            .ok());
  const double wanted = 2048. * 2048 * 0.1F;
  CHECK(out.Read(c.dtype, {1}).At(0) == doctest::Approx(wanted).epsilon(1e-5));
}

TEST_CASE("without images the filter's gradient is zero") {
  const ConvCase c{.images = 0};
  const DeviceBuffer out(static_cast<size_t>(c.filter().elements()) * 4);
  CHECK(FindDepthwise(ConvPass::kFilter, c.dtype)(
            c.geometry(), nullptr, nullptr, out.get(), nullptr, nullptr)
            .ok());
  const Tensor dfilter = out.Read(c.dtype, c.filter());
  for (int64_t i = 0; i < dfilter.elements(); ++i) CHECK(dfilter.At(i) == 0);
}

}  // namespace
}  // namespace sluice::cuda
