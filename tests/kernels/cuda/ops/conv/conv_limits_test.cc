// Which convolutions our own CUDA kernels serve: they count in 32 bits. The
// farthest is compared with the CPU's.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "graph/op.h"
#include "kernels/cuda/ops/gemm/product.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/kernel_run.h"

namespace sluice::testing {
namespace {

// A convolution of one line, x [1,1,width,1], padded in front.
KernelSpec LineConv(const std::string& op, int64_t width, int64_t taps,
                    int64_t stride, int64_t padding) {
  KernelSpec spec{.op = op, .conv = OpTable::Global().Get(op).conv, .node = op};
  spec.attrs.Set("strides", std::vector<int64_t>{1, stride});
  spec.attrs.Set("dilations", std::vector<int64_t>{1, 1});
  spec.attrs.Set("padding", std::string("EXPLICIT"));
  spec.attrs.Set("explicit_padding", std::vector<int64_t>{0, 0, padding, 0});
  spec.attrs.Set("groups", int64_t{1});
  const auto line = [](int64_t n) {
    return TensorType{DType::kFloat32, {1, 1, n, 1}};
  };
  const TensorType x = line(width);
  const TensorType y = line((padding + width - taps) / stride + 1);
  const TensorType filter = {DType::kFloat32, spec.conv.ohwi
                                                  ? Shape{1, 1, taps, 1}
                                                  : Shape{1, taps, 1, 1}};
  switch (spec.conv.pass) {
    case ConvPass::kForward:
      spec.inputs = {x, filter};
      spec.outputs = {y};
      break;
    case ConvPass::kInput:
      spec.inputs = {y, filter};
      spec.outputs = {x};
      break;
    case ConvPass::kFilter:
      spec.inputs = {x, y};
      spec.outputs = {filter};
      break;
  }
  return spec;
}

const KernelDef* Ours(const KernelSpec& spec) {
  for (const KernelDef* def :
       KernelTable::Global().FindAll(spec, DeviceType::kCuda)) {
    if (def->provider == "own") return def;
  }
  return nullptr;
}

TEST_CASE("convolutions whose positions take more than 32 bits are not ours") {
  if (OnRealGpu()) return;
  RegisterGpu();
  constexpr int64_t kMost = cuda::kMaxProductSize - 1;
  constexpr int64_t kWidth = 3;
  for (const std::string op :
       {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "OhwiConv2D",
        "OhwiConv2DBackpropInput", "OhwiConv2DBackpropFilter"}) {
    CAPTURE(op);
    CHECK(Ours(LineConv(op, kWidth, 1, int64_t{1} << 30, 2147483647)) ==
          nullptr);
    CHECK(Ours(LineConv(op, kWidth, 1, 1 << 30, kMost + 1 - kWidth)) ==
          nullptr);
    CHECK(Ours(LineConv(op, 3'000'000'000, 4, 4, 0)) == nullptr);
    // The last of three windows is on the last element of x.
    const auto line_conv = [](const std::string& name) {
      const int64_t padding = kMost - kWidth;
      return LineConv(name, kWidth, 1, (padding + kWidth - 1) / 2, padding);
    };
    const KernelSpec longest = line_conv(op);
    const KernelDef* const ours = Ours(longest);
    REQUIRE(ours != nullptr);
    std::vector<Tensor> inputs;
    for (const TensorType& type : longest.inputs) {
      Tensor& x = inputs.emplace_back(type.dtype, type.shape);
      for (int64_t i = 0; i < x.elements(); ++i) {
        x.data<float>()[i] = static_cast<float>(2 + 3 * i);
      }
    }
    // A filter of one element is HWIO, too.
    const std::string hwio = op.substr(op.starts_with("Ohwi") ? 4 : 0);
    const KernelSpec same = line_conv(hwio);
    const KernelDef* const reference =
        KernelTable::Global().FindAll(same, DeviceType::kCpu).back();
    const std::vector<Tensor> wanted = RunKernel(*reference, same, inputs);
    CHECK(wanted[0].At(wanted[0].elements() - 1) != 0);
    CHECK(Difference(RunKernel(*ours, longest, inputs), wanted, {}) == "");
  }
}

}  // namespace
}  // namespace sluice::testing
