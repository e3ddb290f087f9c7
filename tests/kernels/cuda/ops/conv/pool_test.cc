// The CUDA kernels of pooling, emulated, against the CPU's.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/ops/conv/pool.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

// Images under windows; padding is explicit: top, bottom, left, right.
struct PoolCase {
  DType dtype = DType::kFloat32;
  int64_t images = 2, height = 9, width = 8, channels = 12;
  std::vector<int64_t> window = {3, 2}, strides = {2, 1};
  std::vector<int64_t> padding = {1, 2, 0, 1};
  size_t skip = 0;

  Attributes attrs() const {
    return {{"window", window},
            {"strides", strides},
            {"padding", "EXPLICIT"},
            {"explicit_padding", padding}};
  }
  Shape x() const { return {images, height, width, channels}; }
  PoolShape shape() const {
    const Window2D w =
        WindowOf(attrs(), x(), window[0], window[1]).ValueOrThrow();
    return {images, channels, w.h, w.w};
  }
  Shape y() const {
    const PoolShape s = shape();
    return {images, s.h.output, s.w.output, channels};
  }
};

// Half sums are rounded once here; on the CPU after every term, or row of
// windows, unless these are more than a run. Terms of up to `scale` together
// may cancel.
void Check(const PoolCase& c, const std::string& op,
           const std::vector<Tensor>& inputs, const Shape& result,
           double scale = 1) {
  const Tensor wanted =
      CpuResults(op, c.attrs(), inputs, {{c.dtype, result}}).front();
  const Tensor got =
      InEveryOrder([&] {
        std::vector<DeviceBuffer> in;
        const void* operands[3] = {};
        for (size_t i = 0; i < inputs.size(); ++i) {
          if (inputs[i].dtype() == DType::kInt64) continue;  // a shape
          in.emplace_back(inputs[i], c.skip);
          operands[i] = in.back().get();
        }
        const DeviceBuffer out(wanted.bytes(), c.skip);
        CHECK(FindPool(op, c.dtype)(c.shape(), operands[0], operands[1],
                                    operands[2], out.get(), nullptr)
                  .ok());
        return std::vector{out.Read(c.dtype, result)};
      }).front();
  const std::string difference = Difference(got, wanted, 8, scale);
  CHECK_MESSAGE(difference.empty(), op, " of ", c.x().ToString(), ": ",
                difference);
}

// y and argmax.
void CheckArgmax(const PoolCase& c, const Tensor& x) {
  const std::vector<Tensor> wanted =
      CpuResults("MaxPoolWithArgmax", c.attrs(), {x},
                 {{c.dtype, c.y()}, {DType::kUInt8, c.y()}});
  const std::vector<Tensor> got = InEveryOrder([&] {
    const DeviceBuffer in(x, c.skip), y(wanted[0].bytes(), c.skip),
        argmax(wanted[1].bytes(), c.skip);
    CHECK(FindMaxPoolWithArgmax(c.dtype)(c.shape(), in.get(), y.get(),
                                         static_cast<uint8_t*>(argmax.get()),
                                         nullptr)
              .ok());
    return std::vector{y.Read(c.dtype, c.y()),
                       argmax.Read(DType::kUInt8, c.y())};
  });
  CHECK(Difference(got[0], wanted[0], 0, 0) == "");
  CHECK(Difference(got[1], wanted[1], 0, 0) == "");
}

void CheckPools(const PoolCase& c) {
  // Few values, so that the largest of a window is not the only one.
  Tensor x = RandomTensor(DType::kFloat64, c.x(), -3, 3);
  for (double& v : x.values<double>()) v = std::round(v);
  x = x.Cast(c.dtype);
  const Tensor dy = RandomTensor(c.dtype, c.y(), -1, 1, 2);
  const Tensor g = RandomTensor(c.dtype, c.x(), -1, 1, 3);
  const Tensor y =
      CpuResults("MaxPool", c.attrs(), {x}, {{c.dtype, c.y()}}).front();
  const Shape s = c.x();
  const Tensor x_shape =
      Tensor::Vector<int64_t>(std::vector<int64_t>(s.begin(), s.end()));
  Check(c, "MaxPool", {x}, c.y());
  Check(c, "MaxPoolGrad", {x, y, dy}, c.x());
  Check(c, "MaxPoolGradGrad", {x, y, g}, c.y());
  CheckArgmax(c, x);
  Tensor argmax(DType::kUInt8, c.y());  // any element, and none
  const auto elements = static_cast<int>(c.window[0] * c.window[1]);
  int at = 0;
  for (uint8_t& place : argmax.values<uint8_t>()) {
    at = (at * 5 + 7) % (elements + 1);
    place = static_cast<uint8_t>(at == elements ? 255 : at);
  }
  Check(c, "MaxPoolGradWithArgmax", {dy, argmax, x_shape}, c.x());
  Check(c, "AvgPool", {x}, c.y());
  Check(c, "AvgPoolGrad", {dy, x_shape}, c.x());
}

TEST_CASE("pools whose windows overlap, tile, leave gaps, or hang over") {
  for (DType dtype : kFloatTypes) {
    CheckPools({.dtype = dtype});
    CheckPools({.dtype = dtype, .images = 1, .channels = 16});
  }
  CheckPools({.channels = 3});
  CheckPools({.channels = 8, .skip = 4});
  CheckPools({.dtype = DType::kFloat16, .channels = 16, .skip = 2});
  CheckPools({.window = {2, 2}, .strides = {2, 2}, .padding = {0, 0, 0, 0}});
  CheckPools({.window = {1, 2}, .strides = {3, 3}, .padding = {0, 0, 0, 0}});
  CheckPools({.window = {9, 8}, .strides = {1, 1}, .padding = {0, 0, 0, 0}});
  CheckPools({.window = {5, 5}, .strides = {1, 1}, .padding = {2, 2, 2, 2}});
}

TEST_CASE("windows of several runs") {
  for (DType dtype : kFloatTypes) {
    const PoolCase c{.dtype = dtype,
                     .height = 30,
                     .width = 29,
                     .channels = 12,
                     .window = {25, 27},
                     .strides = {1, 2},
                     .padding = {3, 2, 4, 4}};
    Check(c, "AvgPool", {RandomTensor(dtype, c.x(), -1, 1)}, c.y());
  }
}

TEST_CASE("more windows over an element than a run") {
  for (DType dtype : kFloatTypes) {
    const PoolCase c{.dtype = dtype,
                     .images = 2,
                     .height = 24,
                     .width = 22,
                     .window = {20, 17},
                     .strides = {1, 1},
                     .padding = {9, 8, 7, 8}};
    const Tensor x = RandomTensor(dtype, c.x(), -1, 1);
    const Tensor dy = RandomTensor(dtype, c.y(), -1, 1, 2);
    const Tensor y =
        CpuResults("MaxPool", c.attrs(), {x}, {{dtype, c.y()}}).front();
    const Shape s = c.x();
    Check(c, "MaxPoolGrad", {x, y, dy}, s, 16);
    Check(c, "AvgPoolGrad", {dy, Tensor::Vector<int64_t>({s.begin(), s.end()})},
          s);
  }
}

// One pixel, under windows that each give it their dy.
TEST_CASE("gradients of many windows keep the digits of each") {
  for (const int64_t channels : {4, 3}) {
    const PoolCase c{.images = 1,
                     .height = 1,
                     .width = 1,
                     .channels = channels,
                     .window = {128, 128},
                     .strides = {1, 1},
                     .padding = {127, 127, 127, 127}};
    const DeviceBuffer x(Tensor::Full(c.dtype, c.x(), 0.7F));
    const DeviceBuffer y(Tensor::Full(c.dtype, c.y(), 0.7F));  // and dy
    const DeviceBuffer dx(static_cast<size_t>(channels) * 4);
    const auto check = [&](const Status& status) {
      CHECK(status.ok());
      const Tensor sums = dx.Read(c.dtype, c.x());
      for (int64_t i = 0; i < channels; ++i) {
        CHECK(std::abs(sums.At(i) / (128 * 128 * double{0.7F}) - 1) < 1e-5);
      }
    };
    check(FindPool("MaxPoolGrad", c.dtype)(c.shape(), x.get(), y.get(), y.get(),
                                           dx.get(), nullptr));
    check(FindPool("AvgPoolGrad", c.dtype)(c.shape(), y.get(), nullptr, nullptr,
                                           dx.get(), nullptr));
  }
}

TEST_CASE("the mean of a large window keeps the digits of its elements") {
  for (const int64_t channels : {4, 3}) {
    const PoolCase c{.images = 1,
                     .height = 512,
                     .width = 512,
                     .channels = channels,
                     .window = {512, 512},
                     .strides = {1, 1},
                     .padding = {0, 0, 0, 0}};
    const DeviceBuffer x(Tensor::Full(c.dtype, c.x(), 0.1F));
    const DeviceBuffer y(static_cast<size_t>(channels) * 4);
    CHECK(FindPool("AvgPool", c.dtype)(c.shape(), x.get(), nullptr, nullptr,
                                       y.get(), nullptr)
              .ok());
    const Tensor mean = y.Read(c.dtype, c.y());
    for (int64_t i = 0; i < channels; ++i) {
      CHECK(std::abs(mean.At(i) - 0.1) < 1e-6);
    }
  }
}

TEST_CASE("several blocks of pixels") {
  CheckPools({.images = 3, .height = 23, .width = 25, .channels = 5});
}

TEST_CASE("no images") {
  const PoolCase c{.images = 0};
  const bool ok = FindPool("MaxPool", c.dtype)(c.shape(), nullptr, nullptr,
                                               nullptr, nullptr, nullptr)
                      .ok();
  CHECK(ok);
}

TEST_CASE("NaN is larger than everything, and gets no gradient") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const PoolCase c{.images = 1,
                   .height = 2,
                   .width = 4,
                   .channels = 1,
                   .window = {2, 2},
                   .strides = {2, 2},
                   .padding = {0, 0, 0, 0}};
  const Tensor x =
      Tensor::Array<float>({1, 2, 4, 1}, {nan, 5, 1, -2, 3, 2, 0, nan});
  const Tensor y = Tensor::Array<float>({1, 1, 2, 1}, {nan, nan});
  const Tensor dy = Tensor::Array<float>({1, 1, 2, 1}, {1, 1});
  Check(c, "MaxPool", {x}, c.y());
  Check(c, "MaxPoolGrad", {x, y, dy}, c.x());
  CheckArgmax(c, x);
  const bool found = FindPool("MaxPool", DType::kInt32) != nullptr ||
                     FindPool("SumPool", DType::kFloat32) != nullptr ||
                     FindMaxPoolWithArgmax(DType::kInt32) != nullptr;
  CHECK(!found);
}

}  // namespace
}  // namespace sluice::cuda
