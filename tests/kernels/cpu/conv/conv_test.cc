// Convolutions: every kernel against sums written from the definition, the same
// bits for any number of threads, and what wrong shapes say.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "engine/threads.h"
#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/conv.h"
#include "graph/ops/shape.h"
#include "tests/support/guarded_run.h"

namespace sluice::testing {
namespace {

struct Case {
  int64_t images, h, w, in;  // in: channels of x
  int64_t kh, kw, out;       // out: channels of y
  Conv2DOptions options = {};
};

// Among them the two of the MNIST network, channels around the vector widths,
// groups, windows with holes, strides larger than windows and one image.
const Case kCases[] = {
    {3, 28, 28, 1, 5, 5, 32},
    {2, 14, 14, 32, 5, 5, 64},
    {1, 9, 8, 3, 3, 3, 17},
    {20, 5, 6, 2, 3, 2, 5},
    {1, 1, 1, 4, 3, 3, 8},
    {2, 6, 7, 8, 1, 1, 12},
    {1, 9, 7, 300, 1, 1, 70},
    {2, 6, 7, 8, 1, 1, 12, {.strides = {2, 2}}},
    {2, 12, 11, 4, 7, 7, 33, {.strides = {2, 2}}},
    {2, 9, 10, 5, 3, 3, 16, {.strides = {2, 3}, .padding = Padding::kValid}},
    {1, 11, 12, 3, 2, 2, 40, {.strides = {3, 3}}},
    {2, 10, 9, 6, 3, 3, 7, {.dilations = {2, 3}}},
    {1, 13, 12, 4, 3, 2, 9, {.strides = {2, 1}, .dilations = {1, 2}}},
    {2, 7, 8, 8, 3, 3, 24, {.groups = 2}},
    {17, 8, 7, 12, 3, 3, 20, {.strides = {2, 2}, .groups = 4}},
    {2, 7, 8, 6, 3, 3, 6, {.groups = 6}},
    {2,
     6,
     8,
     4,
     3,
     4,
     18,
     {.padding = Padding::kExplicit, .explicit_padding = {3, 0, 1, 4}}},
    // A filter per channel, and more taps than are summed at a time.
    {2, 7, 8, 40, 3, 3, 40, {.strides = {2, 1}, .groups = 40}},
    {1, 12, 19, 37, 9, 8, 37, {.dilations = {1, 2}, .groups = 37}},
    // Windows apart over many channels: filters from a product of patches.
    {2, 9, 8, 32, 3, 3, 48, {.strides = {2, 2}}},
    {3, 7, 6, 64, 1, 1, 40, {.strides = {2, 2}}},
    {3, 9, 8, 64, 3, 3, 512, {.strides = {2, 2}}},
    {1, 13, 12, 33, 3, 2, 24, {.strides = {2, 1}, .dilations = {1, 2}}},
    {1, 5, 6, 208, 3, 3, 160},
    // Those that Winograd's form serves, from kFirstWinograd on: tiles cut at
    // the edges, more tiles than channels, more channels than one block of a
    // product, many groups of tiles, and paddings that leave or add whole rows.
    {2, 9, 10, 32, 3, 3, 64},
    {5, 30, 29, 32, 3, 3, 32},
    {4, 5, 6, 288, 3, 3, 32},
    {16, 3, 2, 64, 3, 3, 288},
    {120, 5, 5, 96, 3, 3, 32},
    {4, 7, 9, 32, 3, 3, 32, {.padding = Padding::kValid}},
    {3,
     6,
     8,
     64,
     3,
     3,
     32,
     {.padding = Padding::kExplicit, .explicit_padding = {3, 0, 1, 4}}},
};
constexpr size_t kFirstWinograd = 24;

struct Values {
  Tensor x, filter, y;
};

// Calls visit(x element, filter element, y element) for every product of the
// convolution, by the definition in engine/semantics/window.h's terms:
// TensorFlow's SAME.
template <typename Visit>
void ForProducts(const Case& c, const Shape& y, Visit visit) {
  auto before = [&](int d, int64_t size, int64_t window, int64_t out) {
    if (c.options.padding == Padding::kValid) return int64_t{0};
    if (c.options.padding == Padding::kExplicit) {
      return c.options.explicit_padding[2 * d];
    }
    const int64_t covered = (out - 1) * c.options.strides[d] +
                            (window - 1) * c.options.dilations[d] + 1;
    return std::max<int64_t>(covered - size, 0) / 2;
  };
  const int64_t top = before(0, c.h, c.kh, y[1]);
  const int64_t left = before(1, c.w, c.kw, y[2]);
  const int64_t group_in = c.in / c.options.groups;
  const int64_t group_out = c.out / c.options.groups;
  for (int64_t n = 0; n < c.images; ++n)
    for (int64_t oh = 0; oh < y[1]; ++oh)
      for (int64_t ow = 0; ow < y[2]; ++ow)
        for (int64_t kh = 0; kh < c.kh; ++kh)
          for (int64_t kw = 0; kw < c.kw; ++kw) {
            const int64_t ih =
                oh * c.options.strides[0] - top + kh * c.options.dilations[0];
            const int64_t iw =
                ow * c.options.strides[1] - left + kw * c.options.dilations[1];
            if (ih < 0 || ih >= c.h || iw < 0 || iw >= c.w) continue;
            for (int64_t o = 0; o < c.out; ++o)
              for (int64_t i = 0; i < group_in; ++i) {
                visit(((n * c.h + ih) * c.w + iw) * c.in +
                          o / group_out * group_in + i,
                      ((kh * c.kw + kw) * group_in + i) * c.out + o,
                      ((n * y[1] + oh) * y[2] + ow) * c.out + o);
              }
          }
}

Tensor Random(const Shape& shape, int seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Tensor t(DType::kFloat32, shape);
  for (float& v : t.values<float>()) v = uniform(random);
  return t;
}

// One op of a case: its node, its inputs and what it must give.
struct Expected {
  const Node* node;
  std::vector<Tensor> inputs;
  Tensor result;
};

struct Built {
  Graph graph;
  std::vector<Expected> ops;
};

// The forms with a bias, and with an addend, over the sums `want`.
void AddFused(const Expected& forward, bool relu, Built* built) {
  const Node& conv = *forward.node;
  const Shape y = conv.output_type(0).shape;
  Attributes attrs = conv.attrs();
  attrs.Set("relu", relu);
  Graph& graph = built->graph;
  const Output bias = graph.Placeholder("bias", DType::kFloat32, {y[-1]});
  const Output addend = graph.Placeholder("addend", DType::kFloat32, y);
  const Tensor biases = Random({y[-1]}, 4), addends = Random(y, 5);
  std::vector<Operand> operands = {conv.input(0), conv.input(1), bias};
  std::vector<Tensor> values = {forward.inputs[0], forward.inputs[1], biases};
  Tensor want = forward.result.Clone();
  for (const char* op : {"Conv2DBias", "Conv2DBiasAdd"}) {
    const bool adds = operands.size() > 3;
    for (int64_t i = 0; i < want.elements(); ++i) {
      want.data<double>()[i] +=
          adds ? addends.data<float>()[i] : biases.data<float>()[i % y[-1]];
    }
    Tensor result = want.Clone();
    for (double& v : result.values<double>()) v = relu ? std::max(v, 0.0) : v;
    const Node& node = graph.Add({op, operands, attrs});
    built->ops.push_back({&node, values, result});
    operands.emplace_back(addend);
    values.push_back(addends);
  }
}

void Build(const Case& c, Built* built) {
  Graph& graph = built->graph;
  const Shape x_shape = {c.images, c.h, c.w, c.in};
  const Shape filter_shape = {c.kh, c.kw, c.in / c.options.groups, c.out};
  const Output x = graph.Placeholder("x", DType::kFloat32, x_shape);
  const Output filter =
      graph.Placeholder("filter", DType::kFloat32, filter_shape);
  const Output y = Conv2D(x, filter, c.options);
  const Output dy = graph.Placeholder("dy", DType::kFloat32, y.shape());
  const Output dx = Conv2DBackpropInput(dy, filter, ShapeOf(x), c.options);
  const Output dfilter =
      Conv2DBackpropFilter(x, dy, ShapeOf(filter), c.options);

  const Tensor xs = Random(x_shape, 1), filters = Random(filter_shape, 2);
  const Tensor dys = Random(y.shape(), 3);
  Tensor want_y = Tensor::Zeros(DType::kFloat64, y.shape());
  Tensor want_dx = Tensor::Zeros(DType::kFloat64, x_shape);
  Tensor want_dfilter = Tensor::Zeros(DType::kFloat64, filter_shape);
  ForProducts(c, y.shape(), [&](int64_t a, int64_t b, int64_t p) {
    const double xv = xs.data<float>()[a], fv = filters.data<float>()[b];
    const double gv = dys.data<float>()[p];
    want_y.data<double>()[p] += xv * fv;
    want_dx.data<double>()[a] += gv * fv;
    want_dfilter.data<double>()[b] += gv * xv;
  });
  auto dims = [](const Shape& s) { return Tensor::Vector(s.dims()); };
  built->ops = {{&y.node(), {xs, filters}, want_y},
                {&dx.node(), {dys, filters, dims(x_shape)}, want_dx},
                {&dfilter.node(), {xs, dys, dims(filter_shape)}, want_dfilter}};
  const Expected forward = built->ops[0];
  AddFused(forward, /*relu=*/c.images % 2 == 0, built);
}

// With `constant`, the kernel knows input 1 when it is made.
std::vector<Tensor> Run(const KernelDef& def, const Expected& op,
                        bool constant = false) {
  KernelSpec spec = SpecOf(*op.node, true);
  if (constant) {
    spec.constants.assign(op.inputs.size(), Tensor());
    spec.constants[1] = op.inputs[1];
  }
  KernelPtr kernel = def.make(spec).ValueOrThrow();
  GuardedRunResult run = GuardedRun(*kernel, spec, op.inputs, 0);
  CHECK_MESSAGE(run.fault.empty(), op.node->Describe() << ": " << run.fault);
  return run.tensors;
}

// In units of the size a sum of that many terms has.
double Error(const Tensor& got, const Tensor& want) {
  double largest = 1, worst = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    largest = std::max(largest, std::abs(want.At(i)));
    const double error = std::abs(got.At(i) - want.At(i));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst / largest;
}

TEST_CASE("every kernel gives the sums of the definition") {
  for (size_t i = 0; i < std::size(kCases); ++i) {
    Built built;
    Build(kCases[i], &built);
    for (const Expected& op : built.ops) {
      for (const KernelDef* def : KernelTable::Global().FindAll(
               SpecOf(*op.node, true), DeviceType::kCpu)) {
        INFO("case ", i, " ", op.node->op().name, " ", def->provider);
        CHECK(Error(Run(*def, op)[0], op.result) < 1e-5);
      }
    }
  }
}

// Nothing is written beside what there is, and gradients are zeros.
TEST_CASE("images without pixels have sums without products") {
  for (const int64_t stride : {1, 2, 5}) {
    for (const int64_t groups : {1, 2, 8}) {
      for (const auto& [h, w] : {std::pair(0, 8), {8, 0}, {0, 0}}) {
        Built built;
        Build({1,
               h,
               w,
               8,
               3,
               3,
               8,
               {.strides = {stride, stride}, .groups = groups}},
              &built);
        for (const Expected& op : built.ops) {
          for (const KernelDef* def : KernelTable::Global().FindAll(
                   SpecOf(*op.node, true), DeviceType::kCpu)) {
            INFO(h, "x", w, " by ", stride, ", groups ", groups, " ",
                 op.node->op().name, " ", def->provider);
            CHECK(Error(Run(*def, op)[0], op.result) == 0);
          }
        }
      }
    }
  }
}

// Winograd's form serves these, of which dx has no tiles and y has some.
TEST_CASE("padding alone has convolutions, too") {
  const Case cases[] = {
      {2,
       0,
       6,
       32,
       3,
       3,
       32,
       {.padding = Padding::kExplicit, .explicit_padding = {4, 4, 1, 1}}},
      {2,
       6,
       0,
       32,
       3,
       3,
       32,
       {.padding = Padding::kExplicit, .explicit_padding = {1, 1, 4, 4}}}};
  for (const Case& c : cases) {
    Built built;
    Build(c, &built);
    for (const Expected& op : built.ops) {
      for (const KernelDef* def : KernelTable::Global().FindAll(
               SpecOf(*op.node, true), DeviceType::kCpu)) {
        INFO(c.h, "x", c.w, " ", op.node->op().name, " ", def->provider);
        CHECK(Error(Run(*def, op)[0], op.result) < 1e-5);
      }
    }
  }
}

TEST_CASE("what is prepared of constant weights changes no sum") {
  for (size_t i = 0; i < std::size(kCases); ++i) {
    Built built;
    Build(kCases[i], &built);
    for (const Expected& op : built.ops) {
      for (const KernelDef* def : KernelTable::Global().FindAll(
               SpecOf(*op.node, true), DeviceType::kCpu)) {
        INFO("case ", i, " ", op.node->op().name, " ", def->provider);
        const Tensor prepared = Run(*def, op, true)[0];
        CHECK(Error(prepared, op.result) < 1e-5);
        // Large filters are summed in another order, once that pays.
        const bool large = op.inputs[1].bytes() >= size_t{1} << 20;
        CHECK((large || prepared.BitEqual(Run(*def, op)[0])));
      }
    }
  }
}

TEST_CASE("the bits do not depend on the number of threads") {
  for (size_t i = 0; i < std::size(kCases); ++i) {
    Built built;
    Build(kCases[i], &built);
    for (const Expected& op : built.ops) {
      const KernelDef* def = KernelTable::Global()
                                 .Find(SpecOf(*op.node, true), DeviceType::kCpu)
                                 .ValueOrThrow();
      SetComputeThreads(1);
      const Tensor alone = Run(*def, op)[0];
      for (int threads : {2, 3, 5}) {
        SetComputeThreads(threads);
        INFO("case ", i, " ", op.node->op().name, " ", threads, " threads");
        CHECK(Run(*def, op)[0].BitEqual(alone));
      }
      SetComputeThreads(0);
    }
  }
}

TEST_CASE("the network's convolutions run on our own vector code") {
  for (size_t i : {0, 1}) {
    Built built;
    Build(kCases[i], &built);
    for (const Expected& op : built.ops) {
      CHECK(KernelTable::Global()
                .Find(SpecOf(*op.node, true), DeviceType::kCpu)
                .ValueOrThrow()
                ->provider == "simd");
    }
  }
}

TEST_CASE("a filter per channel keeps its vector code when more is added") {
  int added = 0;
  for (const Case& c : kCases) {
    if (c.options.groups != c.in || c.in != c.out) continue;
    Built built;
    Build(c, &built);
    for (const Expected& op : built.ops) {
      if (op.node->op().conv.pass != ConvPass::kForward) continue;
      const KernelSpec spec = SpecOf(*op.node, true);
      const KernelDef* def =
          KernelTable::Global().Find(spec, DeviceType::kCpu).ValueOrThrow();
      INFO(op.node->op().name, " of ", c.in, " channels");
      CHECK(def->provider == "simd");
      if (op.inputs.size() < 4) continue;
      // The result may take the addend's place.
      const KernelPtr kernel = def->make(spec).ValueOrThrow();
      const GuardedRunResult run =
          GuardedRun(*kernel, spec, op.inputs, 0, {.in_place = 3});
      CHECK(run.fault == "");
      CHECK(run.tensors[0].BitEqual(Run(*def, op)[0]));
      ++added;
    }
  }
  CHECK(added == 3);
}

TEST_CASE("3x3 windows over many channels take Winograd's form") {
  for (size_t i = kFirstWinograd; i < std::size(kCases); ++i) {
    Built built;
    Build(kCases[i], &built);
    for (const Expected& op : built.ops) {
      CHECK(KernelTable::Global()
                .Find(SpecOf(*op.node, true), DeviceType::kCpu)
                .ValueOrThrow()
                ->provider == "winograd");
    }
  }
}

TEST_CASE("depthwise convolution is the one with a group per channel") {
  for (int64_t multiplier : {1, 2}) {
    const int64_t out = 3 * multiplier;
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2, 6, 5, 3});
    const Output filter =
        graph.Placeholder("f", DType::kFloat32, {3, 2, 3, multiplier});
    const Output grouped =
        graph.Placeholder("g", DType::kFloat32, {3, 2, 1, out});
    const Tensor xs = Random(x.shape(), 1), filters = Random(filter.shape(), 2);
    const std::map<Output, Tensor> given = {
        {x, xs},
        {filter, filters},
        {grouped, filters.Reshaped({3, 2, 1, out})}};
    const Output y = DepthwiseConv2D(x, filter, {.strides = {2, 1}});
    const Output want = Conv2D(x, grouped, {.strides = {2, 1}, .groups = 3});
    CHECK(y.shape() == Shape{2, 3, 5, out});
    const auto value = [&](const Output& output) {
      return Evaluate(output, given).ValueOrThrow();
    };
    CHECK(value(y).BitEqual(value(want)));
    const std::vector<Output> got = Gradients({y}, {x, filter});
    const std::vector<Output> wanted = Gradients({want}, {x, grouped});
    CHECK(value(got[0]).BitEqual(value(wanted[0])));
    CHECK(value(got[1]).Reshaped(grouped.shape()).BitEqual(value(wanted[1])));
  }
}

// More than one block of filters, each of no elements.
TEST_CASE("images without channels give zeros") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat64, {1, 2, 2, 0});
  const Output f = graph.Placeholder("f", DType::kFloat64, {1, 1, 0, 130});
  const KernelSpec spec = SpecOf(Conv2D(x, f).node(), false);
  for (const KernelDef* def :
       KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
    const KernelPtr kernel = def->make(spec).ValueOrThrow();
    const GuardedRunResult run = GuardedRun(
        *kernel, spec,
        {Tensor(x.dtype(), x.shape()), Tensor(f.dtype(), f.shape())}, 0);
    CHECK(run.fault == "");
    const Tensor zeros = Tensor::Zeros(DType::kFloat64, {1, 2, 2, 130});
    CHECK(run.tensors[0].BitEqual(zeros));
  }
}

TEST_CASE("the batch may be unknown, and sizes follow") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 7, 7, 3});
  const Output f = graph.Placeholder("f", DType::kFloat32, {3, 3, 3, 8});
  const Output y = Conv2D(x, f, {.strides = {2, 2}});
  CHECK(y.shape() == Shape{kUnknown, 4, 4, 8});
  CHECK(Conv2DBackpropInput(y, f, ShapeOf(x), {.strides = {2, 2}}).shape() ==
        x.shape());
  CHECK(Conv2D(x, f, {.padding = Padding::kValid}).shape() ==
        Shape{kUnknown, 5, 5, 8});
}

std::string MessageOf(const Shape& x, const Shape& filter,
                      const Conv2DOptions& options) {
  Graph graph;
  const Output a = graph.Placeholder("x", DType::kFloat32, x);
  const Output b = graph.Placeholder("f", DType::kFloat32, filter);
  try {
    Conv2D(a, b, options);
  } catch (const sluice::Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("wrong shapes and options are refused by name") {
  auto says = [](const std::string& message, const char* part) {
    INFO(message);
    CHECK(message.find("Conv2D 'conv2d'") == 0);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find("conv_test.cc:") != std::string::npos);
  };
  says(MessageOf({1, 5, 5, 3}, {3, 3, 4, 8}, {}), "channels differ");
  says(MessageOf({1, 5, 5, 4}, {3, 3, 2, 7}, {.groups = 2}), "7 output");
  says(MessageOf({5, 5, 4}, {3, 3, 4, 8}, {}), "[n,h,w,c]");
  says(MessageOf({1, 2, 5, 4}, {3, 3, 4, 8}, {.padding = Padding::kValid}),
       "does not fit");
  says(MessageOf({1, 5, 5, 4}, {3, 3, 4, 8}, {.strides = {0, 1}}), "stride 0");
  says(MessageOf({1, 5, 5, 4}, {3, 3, 4, 8}, {.groups = 0}), "groups");
}

}  // namespace
}  // namespace sluice::testing
