// How a user's program adds an op of its own, with gradient and kernel, without
// touching Sluice: a record, a kernel, two calls. The op is the smooth step
// y = x^2 (3 - 2 x), whose derivative is 6 x (1 - x).
#include <doctest/doctest.h>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "graph/text/text.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

// The builder function, which records its caller's line.
Output SmoothStep(Operand x) {
  return x.graph().Add({"SmoothStep", {x}}).output(0);
}

constexpr OpDef kSmoothStep = {
    .name = "SmoothStep",
    .doc = "x^2 (3 - 2 x).",
    .inputs = {{"x"}},
    .types = {{"T", kFloatDouble}},
    .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
      const Output& x = node.input(0);
      return {dy[0] * 6 * x * (1 - x)};
    },
    .inplace = {0},
    .probes = {{.inputs = {{.shape = {2, 3}, .lo = 0, .hi = 1}}}},
};

Result<KernelPtr> MakeSmoothStep(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.elements();
  return DispatchFloatDouble(spec.inputs[0].dtype,
                             [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
                               return KernelOf([n](const KernelContext& c) {
                                 const T* x = c.input<T>(0);
                                 T* y = c.output<T>(0);
                                 for (int64_t i = 0; i < n; ++i)
                                   y[i] = x[i] * x[i] * (3 - 2 * x[i]);
                               });
                             });
}

void RegisterOnce() {
  static const bool once = [] {
    OpTable::Global().Register(kSmoothStep);
    KernelTable::Global().Register({.op = "SmoothStep",
                                    .provider = "custom_op_test",
                                    .dtypes = kFloatDouble,
                                    .make = MakeSmoothStep});
    return true;
  }();
  (void)once;
}

TEST_CASE("an op of one's own is an op like the others") {
  RegisterOnce();
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
  const Output y = SmoothStep(x);
  CHECK_EQ(y.name(), "smooth_step");
  CHECK_EQ(y.type().ToString(), "float32[?]");
  const Output slope = Gradients({y}, {x})[0];

  Session session(graph);
  const std::vector<Tensor> got = session.Run(
      {{x, Tensor::Array<float>({3}, {0.f, 0.5f, 0.75f})}}, {y, slope});
  CHECK_EQ(got[0].At(0), 0);
  CHECK_EQ(got[0].At(1), 0.5);
  CHECK_EQ(got[0].At(2), 0.84375);
  CHECK_EQ(got[1].At(1), 1.5);
  CHECK_EQ(got[1].At(2), 1.125);

  const auto read = ParseGraph(PrintGraph(graph));
  REQUIRE(read.ok());
  CHECK_EQ((*read)->Get("smooth_step").node().op().doc, kSmoothStep.doc);
}

TEST_CASE("it fails like the others, too") {
  RegisterOnce();
  Graph graph;
  const Output i = graph.Placeholder("i", DType::kInt32, {2});
  CHECK_THROWS_AS(SmoothStep(i), Error);
  CHECK_THROWS_WITH_AS(OpTable::Global().Register(kSmoothStep),
                       "op 'SmoothStep' is registered twice", Error);
  OpDef nameless = kSmoothStep;
  nameless.doc = nullptr;
  CHECK_THROWS_AS(OpTable::Global().Register(nameless), Error);

  // An op without a kernel can be built and differentiated, not run.
  OpDef bare = kSmoothStep;
  bare.name = "NoKernel";
  OpTable::Global().Register(bare);
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output y = graph.Add({"NoKernel", {x}}).output(0);
  Session session(graph);
  try {
    session.Run({{x, Tensor::Zeros(DType::kFloat32, {2})}}, y);
    FAIL("it ran");
  } catch (const Error& error) {
    CHECK_EQ(error.code(), Code::kUnimplemented);
    CHECK_EQ(std::string(error.what()),
             "NoKernel 'no_kernel': no cpu kernel for inputs float32[2]");
  }
  // Without a rule for its gradient it can be run, not differentiated.
  OpDef forward = kSmoothStep;
  forward.name = "ForwardAlone";
  forward.gradient = nullptr;
  OpTable::Global().Register(forward);
  const Output z = graph.Add({"ForwardAlone", {x}}).output(0);
  CHECK(testing::Contains(
      testing::ErrorOf([&] { Gradients({z}, {x}); }),
      "ForwardAlone 'forward_alone': the op has no gradient rule "));
  // Inputs that are alike are told once.
  KernelSpec spec{.op = "NoKernel", .node = "long"};
  spec.inputs.assign(300, {DType::kFloat64, {}});
  spec.inputs.insert(spec.inputs.begin(), {DType::kFloat32, {2}});
  spec.inputs.push_back({DType::kFloat64, {3}});
  CHECK_EQ(
      KernelTable::Global().Find(spec, DeviceType::kCpu).status().message(),
      "NoKernel 'long': no cpu kernel for inputs float32[2] float64[] x "
      "300 float64[3]");
}

}  // namespace
}  // namespace sluice
