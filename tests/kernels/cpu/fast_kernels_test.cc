// Fast kernels against the reference on shapes that the ops' probes lack: wide
// enough for whole vectors, blocks and several pieces of work.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/semantics/random.h"
#include "engine/threads.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/streaming.h"
#include "tests/support/kernel_run.h"

namespace sluice::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Small integers, so that there are ties; every seventh on [-1, 1).
Tensor Values(const TensorType& type, uint64_t seed) {
  Tensor value = Tensor::Zeros(type.dtype, type.shape);
  if (type.dtype != DType::kFloat32) return value;
  uint64_t state = seed;
  for (float& x : value.values<float>()) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<int>(state >> 40);
    x = bits % 7 == 0 ? static_cast<float>(bits) * 0x1p-23f - 1.0f
                      : static_cast<float>(bits % 5 - 2);
  }
  return value;
}

std::vector<Tensor> ValuesOf(const KernelSpec& spec) {
  std::vector<Tensor> inputs;
  for (const TensorType& type : spec.inputs) {
    inputs.push_back(Values(type, inputs.size() + 1));
  }
  return inputs;
}

// Every kernel above the reference, on one and on two threads. Tolerance 0:
// the same bits as the reference, else about what it gives in float64.
void CheckFast(const Node& node, const std::vector<Tensor>& inputs,
               double tolerance) {
  const KernelSpec spec = SpecOf(node, /*deterministic=*/true);
  const auto kernels = KernelTable::Global().FindAll(spec, DeviceType::kCpu);
  REQUIRE(kernels.size() > 1);
  const std::vector<Tensor> wanted =
      tolerance == 0 ? RunKernel(*kernels.back(), spec, inputs)
                     : Float64Reference(spec, inputs);
  for (size_t k = 0; k + 1 < kernels.size(); ++k) {
    INFO(fmt::format("{} {} {}", spec.op, spec.inputs[0].ToString(),
                     kernels[k]->provider));
    SetComputeThreads(1);
    const std::vector<Tensor> one = RunKernel(*kernels[k], spec, inputs);
    SetComputeThreads(2);
    CHECK(SameBits(one, RunKernel(*kernels[k], spec, inputs)));
    SetComputeThreads(0);
    if (tolerance == 0) {
      CHECK(SameBits(one, wanted));
    } else {
      CHECK(Difference(one, wanted, {.relative = tolerance}) == "");
    }
  }
}

// Evaluates y = MaxPool(x) and dx by every kernel, and both with the place of
// the largest between them.
void CheckMaxPool(const Shape& shape, const PoolOptions& options) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, shape);
  const Output y = MaxPool(x, options);
  std::vector<Tensor> inputs = ValuesOf(SpecOf(y.node(), true));
  inputs[0].data<float>()[shape.elements() / 3] = kNan;
  CheckFast(y.node(), inputs, 0);

  inputs[0] = Values(x.type(), 1);
  const Node& grad = Gradients({y}, {x})[0].node();
  const Tensor maxima = Evaluate(y, {{x, inputs[0]}}).ValueOrThrow();
  const Tensor dy = Values(y.type(), 3);
  CheckFast(grad, {inputs[0], maxima, dy}, 0);

  const Node& found = graph.Add({"MaxPoolWithArgmax", {x}, y.node().attrs()});
  inputs[0].data<float>()[shape.elements() / 3] = kNan;
  CheckFast(found, inputs, 0);
  const Tensor argmax =
      Evaluate(found.output(1), {{x, inputs[0]}}).ValueOrThrow();
  const Output places =
      graph.Placeholder("argmax", DType::kUInt8, argmax.shape());
  const Output given = graph.Placeholder("dy", dy.dtype(), dy.shape());
  const Tensor x_shape = Tensor::Vector<int64_t>({shape.begin(), shape.end()});
  const Node& with = graph.Add({"MaxPoolGradWithArgmax",
                                {given, places, graph.Constant(x_shape)},
                                y.node().attrs()});
  CheckFast(with, {dy, argmax, x_shape}, 0);
}

TEST_CASE("maximum pools of many channels") {
  const PoolOptions resnet = {.window = {3, 3},
                              .strides = {2, 2},
                              .padding = Padding::kExplicit,
                              .explicit_padding = {1, 1, 1, 1}};
  CheckMaxPool({3, 13, 12, 45}, resnet);  // 32, 8 and 5 channels
  CheckMaxPool({1, 20, 9, 8}, resnet);    // rows in several pieces
  CheckMaxPool({2, 11, 10, 64}, {});      // the last row is left out
  CheckMaxPool(
      {20, 5, 6, 40},
      {.window = {2, 3}, .strides = {1, 1}, .padding = Padding::kSame});
  CheckMaxPool({1, 9, 9, 16}, {.window = {1, 1}, .strides = {3, 3}});
}

TEST_CASE("means of large windows keep the digits of their elements") {
  // One run of a window is a sum in its elements' own type.
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kFloat32, 4e-6), {DType::kFloat64, 64 * 0x1p-52}}) {
    Graph graph;
    const Output x = graph.Placeholder("x", dtype, {1, 1024, 1024, 2});
    const Output y = AvgPool(x, {.window = {1024, 1024}, .strides = {1, 1}});
    const KernelSpec spec = SpecOf(y.node(), /*deterministic=*/true);
    const Tensor value = Tensor::Full(dtype, x.shape(), 0.1);
    for (const KernelDef* def :
         KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
      CAPTURE(def->provider);
      const Tensor mean = RunKernel(*def, spec, {value})[0];
      for (int64_t i = 0; i < 2; ++i) {
        CHECK(std::abs(mean.At(i) / value.At(0) - 1) < tolerance);
      }
    }
  }
}

// dx of every kernel of a gradient of pools.
template <typename Check>
void ForEachPoolGrad(const Output& dx, const std::vector<Tensor>& inputs,
                     const Check& check) {
  const KernelSpec spec = SpecOf(dx.node(), /*deterministic=*/true);
  for (const KernelDef* def :
       KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
    CAPTURE(spec.op);
    CAPTURE(def->provider);
    check(RunKernel(*def, spec, inputs)[0]);
  }
}

// Windows over one pixel, which each of them gives its dy to.
void CheckGradOfPixel(std::array<int64_t, 2> window) {
  CAPTURE(window[0]);
  CAPTURE(window[1]);
  const PoolOptions options = {
      .window = window,
      .strides = {1, 1},
      .padding = Padding::kExplicit,
      .explicit_padding = {window[0] - 1, window[0] - 1, window[1] - 1,
                           window[1] - 1}};
  const Shape pixel = {1, 1, 1, 9}, windows = {1, window[0], window[1], 9};
  const Tensor x = Tensor::Full(DType::kFloat32, pixel, 0.7F);
  const Tensor y = Tensor::Full(DType::kFloat32, windows, 0.7F);
  const Tensor x_shape = Tensor::Vector<int64_t>({pixel.begin(), pixel.end()});
  const double wanted =
      static_cast<double>(window[0] * window[1]) * double{0.7F};
  const auto check = [&](const Tensor& dx) {
    for (int64_t i = 0; i < dx.elements(); ++i) {
      CHECK(std::abs(dx.At(i) / wanted - 1) < 1e-5);
    }
  };
  Graph graph;
  const Output of_x = graph.Placeholder("x", x.dtype(), pixel);
  const Output of_y = graph.Placeholder("y", y.dtype(), windows);
  ForEachPoolGrad(MaxPoolGrad(of_x, of_y, of_y, options), {x, y, y}, check);
  ForEachPoolGrad(AvgPoolGrad(of_y, graph.Constant(x_shape), options),
                  {y, x_shape}, check);
}

TEST_CASE("gradients of many windows keep the digits of each") {
  CheckGradOfPixel({128, 128});
  CheckGradOfPixel({1 << 14, 1});
  CheckGradOfPixel({1, 1 << 14});
}

TEST_CASE("gradients of means whose windows leave gaps or overlap") {
  Graph graph;
  const Output dy = graph.Placeholder("dy", DType::kFloat32, {1, 2, 2, 1});
  const auto check = [&](const PoolOptions& options, const Tensor& given,
                         const Tensor& wanted) {
    const Shape& shape = wanted.shape();
    const Tensor x_shape =
        Tensor::Vector<int64_t>({shape.begin(), shape.end()});
    ForEachPoolGrad(AvgPoolGrad(dy, graph.Constant(x_shape), options),
                    {given, x_shape},
                    [&](const Tensor& dx) { CHECK(dx.BitEqual(wanted)); });
  };
  check({.window = {2, 2}, .strides = {3, 3}},
        Tensor::Array<float>({1, 2, 2, 1}, {4, 8, 12, 16}),
        Tensor::Array<float>({1, 7, 6, 1}, {1, 1, 0, 2, 2, 0,  //
                                            1, 1, 0, 2, 2, 0,  //
                                            0, 0, 0, 0, 0, 0,  //
                                            3, 3, 0, 4, 4, 0,  //
                                            3, 3, 0, 4, 4, 0,  //
                                            0, 0, 0, 0, 0, 0,  //
                                            0, 0, 0, 0, 0, 0}));
  check({.window = {2, 2}, .strides = {1, 1}},
        Tensor::Array<float>({1, 2, 2, 1}, {4, 8, 12, 16}),
        Tensor::Array<float>({1, 3, 3, 1}, {1, 3, 2,   //
                                            4, 10, 6,  //
                                            3, 7, 4}));
}

TEST_CASE("random bits are the stream's on every instruction set") {
  const RandomStream stream(7, 11, 13, 1);
  for (const char* isa : {"baseline", "avx2", "avx512"}) {
    const simd::SimdKernels* table = SimdFor(isa);
    if (table == nullptr) continue;
    for (const uint64_t first : {uint64_t{0}, uint64_t{0xfffffffa}}) {
      for (const int64_t blocks : {1, 3, 8, 21}) {
        std::vector<uint32_t> bits(4 * blocks + 1, 0xabcdu);
        table->random.bits(stream.key().data(), stream.salt(), first, blocks,
                           bits.data());
        for (int64_t i = 0; i < 4 * blocks; ++i) {
          CHECK(bits[i] ==
                stream.Block(first + i / 4)[static_cast<int>(i % 4)]);
        }
        CHECK(bits.back() == 0xabcdu);
      }
    }
  }
}

TEST_CASE("uniform numbers and dropout have the same bits everywhere") {
  Graph graph;
  for (const int64_t n : {1, 1021, 40'000}) {
    const Output u = RandomUniform(graph, {n}, -0.3, 0.7);
    CheckFast(u.node(), ValuesOf(SpecOf(u.node(), true)), 0);
    const Output x = graph.Placeholder("x", DType::kFloat32, {n});
    const Output y = Dropout(x, 0.3);
    CheckFast(y.node(), ValuesOf(SpecOf(y.node(), true)), 0);
  }
}

// 18 MB, which is streamed, and not a multiple of a vector.
TEST_CASE("large results are written past the caches") {
  const int64_t n = (int64_t{1} << 22) + 300'003;
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {n});
  const Output b = graph.Placeholder("b", DType::kFloat32, {n});
  for (const Output& y : {Relu(x), x + b, x * 2.0}) {
    CheckFast(y.node(), ValuesOf(SpecOf(y.node(), true)), 0);
  }
}

TEST_CASE("copies of any size and alignment") {
  constexpr size_t kLarge = cpu::kStreamedBytes + 70'001;
  const Tensor from = Values({DType::kFloat32, {kLarge / 4 + 40}}, 5);
  const char* source = static_cast<const char*>(from.raw());
  Tensor buffer = Tensor::Zeros(DType::kFloat32, from.shape());
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{200},
                             size_t{70'001}, kLarge}) {
    for (const size_t shift : {0, 1, 60}) {
      char* to = static_cast<char*>(buffer.raw()) + shift;
      std::fill(to, to + bytes + 1, char{99});
      cpu::CopyBytes(source + shift / 2, to, bytes);
      CHECK(std::equal(to, to + bytes, source + shift / 2));
      CHECK(to[bytes] == 99);
    }
  }
}

TEST_CASE("cross entropy of many classes") {
  for (const int64_t classes : {10, 1003}) {
    for (const double smoothing : {0.0, 0.1}) {
      Graph graph;
      const int64_t rows = 37;
      const Output logits =
          graph.Placeholder("logits", DType::kFloat32, {rows, classes});
      const Output labels = graph.Placeholder("labels", DType::kInt64, {rows});
      const Output loss = SparseSoftmaxCrossEntropy(
          logits, labels, {.label_smoothing = smoothing});
      std::vector<Tensor> inputs = ValuesOf(SpecOf(loss.node(), true));
      for (int64_t r = 0; r < rows; ++r) {
        inputs[1].data<int64_t>()[r] = r * 31 % classes;
      }
      CheckFast(loss.node(), inputs, 1e-6);
      const Node& grad = Gradients({loss}, {logits})[0].node();
      const double scale = 2 / static_cast<double>(classes);
      for (const double value : {1.0, scale, 0.5}) {  // max, scale, dloss
        inputs.push_back(Tensor::Full(DType::kFloat32, {rows}, value));
      }
      CheckFast(grad, inputs, 1e-6);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
