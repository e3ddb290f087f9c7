// Convolutions with strides, dilations and padding beyond the sizes of images:
// every kernel against plain loops, and in memory that has a bound.
#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph/compile/evaluate.h"
#include "graph/ops/conv.h"
#include "graph/ops/shape.h"
#include "kernels/cpu/conv/direct_conv.h"
#include "tests/support/guarded_run.h"
#include "tests/support/random.h"

namespace sluice::testing {
namespace {

constexpr int64_t kLargest = (int64_t{1} << 31) - 1;  // of what an op allows
constexpr size_t kMostWorkspace = size_t{64} << 20;
constexpr size_t kMostOfPlan = size_t{16} << 20;

// Bytes that the program holds now; of sanitizers' memory none are known.
size_t Held() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// One direction.
struct Line {
  int64_t input = 1, window = 1, output = 1;
  int64_t stride = 1, dilation = 1, before = 0, after = 0;

  // Calls visit(o, k, i) where tap k of window o lies on element i.
  template <typename Visit>
  void ForTaps(const Visit& visit) const {
    for (int64_t o = 0; o < output; ++o) {
      for (int64_t k = 0; k < window; ++k) {
        const int64_t i = o * stride - before + k * dilation;
        if (i >= 0 && i < input) visit(o, k, i);
      }
    }
  }
};

// Some tap of some window lies on an element, however far apart they are.
Line RandomLine(Random& random) {
  const auto step = [&] {
    return random.Between(1, random.Chance(2) ? 3 : kLargest / 4);
  };
  for (;;) {
    Line line = {.input = random.Between(1, 7),
                 .window = random.Between(1, 3),
                 .output = random.Between(1, 5),
                 .stride = step(),
                 .dilation = step()};
    const int64_t o = random.Between(0, line.output - 1);
    const int64_t k = random.Between(0, line.window - 1);
    const int64_t i = random.Between(0, line.input - 1);
    line.before = o * line.stride + k * line.dilation - i;
    const int64_t covered =
        (line.output - 1) * line.stride + (line.window - 1) * line.dilation + 1;
    line.after = covered - line.before - line.input +
                 random.Between(0, std::min<int64_t>(line.stride - 1, 2));
    if (std::min(line.before, line.after) >= 0 &&
        std::max(line.before, line.after) <= kLargest) {
      return line;
    }
  }
}

struct Case {
  Line h, w;
  int64_t in, out, groups;  // channels of all groups
};

// Small integers, of which sums are exact.
Tensor Numbers(const Shape& shape, Random& random) {
  Tensor t(DType::kFloat32, shape);
  for (float& v : t.values<float>()) {
    v = static_cast<float>(random.Between(-3, 3));
  }
  return t;
}

void CheckKernels(const Output& result, const std::vector<Tensor>& inputs,
                  const Tensor& wanted) {
  const KernelSpec spec = SpecOf(result.node(), /*deterministic=*/true);
  for (const KernelDef* def :
       KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
    INFO(result.node().Describe(), " by ", def->provider);
    const size_t held = Held();
    const KernelPtr kernel = def->make(spec).ValueOrThrow();
    CHECK(Held() < held + kMostOfPlan);
    REQUIRE(kernel->workspace_bytes() < kMostWorkspace);
    const GuardedRunResult run = GuardedRun(*kernel, spec, inputs, 0);
    CHECK(run.fault == "");
    CHECK(Difference(run.tensors, {wanted}, {.absolute = 0.01}) == "");
  }
}

void CheckCase(const Case& c, Random& random) {
  CAPTURE(c.h.stride);
  CAPTURE(c.h.dilation);
  CAPTURE(c.h.before);
  CAPTURE(c.w.stride);
  CAPTURE(c.w.dilation);
  CAPTURE(c.w.before);
  const Conv2DOptions options = {
      .strides = {c.h.stride, c.w.stride},
      .dilations = {c.h.dilation, c.w.dilation},
      .padding = Padding::kExplicit,
      .explicit_padding = {c.h.before, c.h.after, c.w.before, c.w.after},
      .groups = c.groups};
  const int64_t in = c.in / c.groups, out = c.out / c.groups;
  Graph graph;
  const Output x =
      graph.Placeholder("x", DType::kFloat32, {1, c.h.input, c.w.input, c.in});
  const Output filter = graph.Placeholder("filter", DType::kFloat32,
                                          {c.h.window, c.w.window, in, c.out});
  const Output y = Conv2D(x, filter, options);
  REQUIRE(y.shape() == Shape{1, c.h.output, c.w.output, c.out});
  const Output dy = graph.Placeholder("dy", DType::kFloat32, y.shape());

  const Tensor xs = Numbers(x.shape(), random);
  const Tensor filters = Numbers(filter.shape(), random);
  const Tensor dys = Numbers(y.shape(), random);
  Tensor want_y = Tensor::Zeros(DType::kFloat64, y.shape());
  Tensor want_dx = Tensor::Zeros(DType::kFloat64, x.shape());
  Tensor want_dfilter = Tensor::Zeros(DType::kFloat64, filter.shape());
  const float *a = xs.data<float>(), *b = filters.data<float>();
  const float* g = dys.data<float>();
  double *sum_y = want_y.data<double>(), *sum_dx = want_dx.data<double>();
  double* sum_dfilter = want_dfilter.data<double>();
  c.h.ForTaps([&](int64_t oh, int64_t kh, int64_t ih) {
    c.w.ForTaps([&](int64_t ow, int64_t kw, int64_t iw) {
      for (int64_t i = 0; i < in; ++i) {
        for (int64_t o = 0; o < c.out; ++o) {
          const int64_t at_x = (ih * c.w.input + iw) * c.in + o / out * in + i;
          const int64_t at_filter =
              ((kh * c.w.window + kw) * in + i) * c.out + o;
          const int64_t at_y = (oh * c.w.output + ow) * c.out + o;
          sum_y[at_y] += a[at_x] * b[at_filter];
          sum_dx[at_x] += g[at_y] * b[at_filter];
          sum_dfilter[at_filter] += g[at_y] * a[at_x];
        }
      }
    });
  });
  const auto dims = [](const Output& of) {
    return Tensor::Vector(of.shape().dims());
  };
  CheckKernels(y, {xs, filters}, want_y);
  CheckKernels(Conv2DBackpropInput(dy, filter, ShapeOf(x), options),
               {dys, filters, dims(x)}, want_dx);
  CheckKernels(Conv2DBackpropFilter(x, dy, ShapeOf(filter), options),
               {xs, dys, dims(filter)}, want_dfilter);
}

TEST_CASE("windows may be as far apart as the op allows") {
  constexpr int64_t kHalf = int64_t{1} << 30;
  const Line line = {.input = 4,
                     .output = 2,
                     .stride = kLargest,
                     .before = kHalf,
                     .after = kHalf};
  Random random(1);
  for (const int64_t channels : {1, 40}) {
    CheckCase({line, line, channels, channels, 1}, random);
  }
}

TEST_CASE("dilations beyond an image take no memory for what is between") {
  Random random(2);
  for (const auto& [dilation, channels] :
       {std::pair<int64_t, int64_t>{512, 32}, {4096, 8}}) {
    const Line line = {.input = 64,
                       .window = 3,
                       .output = 64,
                       .dilation = dilation,
                       .before = dilation,
                       .after = dilation};
    CheckCase({line, line, channels, channels, 1}, random);
  }
}

// A column of pixels under a row of taps.
TEST_CASE("windows across an image take no memory for what is beside it") {
  constexpr int64_t kLength = 1 << 12;
  const Line along = {.input = kLength, .output = kLength};
  const Line across = {
      .window = kLength, .before = kLength / 2, .after = kLength / 2 - 1};
  Random random(3);
  CheckCase({along, across, 1, 1, 1}, random);
  CheckCase({across, along, 1, 1, 1}, random);
}

// Of nearly all pixels no window makes anything.
TEST_CASE("strides as long as an image take no memory for what is between") {
  const Line along = {
      .input = 1 << 20, .window = 3, .output = 2, .stride = 1 << 19};
  const Line side = {
      .input = 1 << 10, .window = 2, .output = 2, .stride = 1 << 9};
  Random random(5);
  CheckCase({along, {}, 1, 1, 1}, random);
  CheckCase({{}, along, 1, 1, 1}, random);
  CheckCase({side, side, 1, 1, 1}, random);
  // Windows side by side.
  const Line whole = {
      .input = 1 << 12, .window = 1 << 11, .output = 2, .stride = 1 << 11};
  CheckCase({whole, {}, 1, 1, 1}, random);
}

// By the number of taps times that of strides it would take minutes.
TEST_CASE("a gradient of windows as long as their strides is planned at once") {
  constexpr int64_t kLength = 1 << 18;
  ConvGeometry g;
  g.images = g.in = g.out = 1;
  g.h = {.input = 1, .output = 1};
  g.w = {
      .input = kLength, .output = 1, .window = kLength / 2, .stride = kLength};
  CHECK(cpu::CopiesFit(g, ConvPass::kInput));
  const cpu::DirectConv direct = cpu::BackpropInputConv(g);
  CHECK(direct.gaps);
  REQUIRE(direct.phases.size() == kLength / 2);
  std::vector<int> taps(kLength / 2);
  for (const cpu::ConvPhase& phase : direct.phases) {
    REQUIRE(phase.taps.size() == 1);
    CHECK(phase.y_offset == phase.taps[0]);  // the pixel under it
    ++taps[static_cast<size_t>(phase.taps[0])];
  }
  CHECK(std::count(taps.begin(), taps.end(), 1) == kLength / 2);
}

TEST_CASE("any strides, dilations and paddings that meet an image") {
  struct Channels {
    int64_t in, out, groups;
  };
  Random random(4);
  for (int i = 0; i < 15; ++i) {
    for (const auto& [in, out, groups] :
         {Channels{1, 1, 1}, {5, 7, 1}, {32, 32, 1}, {8, 8, 2}, {6, 6, 6}}) {
      const Line h = RandomLine(random), w = RandomLine(random);
      CheckCase({h, w, in, out, groups}, random);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
