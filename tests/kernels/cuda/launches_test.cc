// What LaunchesOf says of GPU kernels against what they do in the emulation:
// how many there are, for every op, and the bytes of those that move the most.
#include "graph/compile/launches.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "kernels/cuda/fused/fused_form.h"
#include "tests/kernels/cuda/emulation/device_run.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/guarded_run.h"
#include "tests/support/op_check.h"

namespace sluice::testing {
namespace {

namespace emulation = cuda::emulation;
using emulation::Traffic;

bool IsLibrarys(const std::vector<KernelLaunch>& launches) {
  return std::any_of(
      launches.begin(), launches.end(),
      [](const KernelLaunch& launch) { return launch.kernel == kLibrary; });
}

// Kernels that run for the node, without copies of whole tensors.
int64_t Launched(const ProbeCase& c, const KernelSpec& spec) {
  const auto all = KernelTable::Global().FindAll(spec, DeviceType::kCuda);
  if (all.empty()) return -1;
  const KernelPtr kernel = all[0]->make(spec).ValueOrThrow();
  GuardedRunOptions options;
  const StepKey key;
  options.step.device_key = &key;
  const int64_t before = emulation::Launches();
  GuardedRun(*kernel, spec, c.values, c.node->mutates(), options);
  return emulation::Launches() - before;
}

void CheckCount(const ProbeCase& c, const std::string& where) {
  const KernelSpec spec = SpecOf(*c.node, /*deterministic=*/false);
  const std::vector<KernelLaunch> launches = LaunchesOf(*c.node);
  // cuDNN and cuBLASLt are not emulated, generated kernels only those of
  // fused_test.
  if (IsLibrarys(launches) || spec.op.starts_with("Fused")) return;
  const int64_t launched = Launched(c, spec);
  if (launched < 0) return;
  const auto stated = std::count_if(
      launches.begin(), launches.end(),
      [](const auto& launch) { return launch.kernel != kMemcpy; });
  CHECK_MESSAGE(launched == stated, c.node->op().name, ", ", where);
}

TEST_CASE("every op launches as many kernels as is said") {
  RegisterGpu();
  if (OnRealGpu()) return;  // nobody counts there
  for (const OpDef* op : OpTable::Global().All()) {
    if (!NeedsProbe(*op) || op->view || op->collective) continue;
    std::vector<TypeBinding> bindings = OtherBindings(*op);
    bindings.insert(bindings.begin(), WidestBinding(*op));
    for (int p = 0; p < op->probes.size(); ++p) {
      for (const TypeBinding& binding : bindings) {
        bool integral = false;
        for (const auto& [name, dtype] : binding) {
          integral |= !IsFloating(dtype);
        }
        if (integral && HasNonFinite(op->probes[p])) continue;
        const ProbeCase c = MakeProbeCase(*op, op->probes[p], binding);
        int64_t elements = 0;  // no work is no launch
        for (int i = 0; i < c.node->num_outputs(); ++i) {
          elements += c.node->output_type(i).shape.elements();
        }
        if (elements == 0) continue;
        CheckCount(c, fmt::format("probe {} {}", p, ToString(binding)));
      }
    }
  }
}

TEST_CASE("what is cut by size is launched as often as is said") {
  RegisterGpu();
  if (OnRealGpu()) return;
  const TypeBinding f32 = {{"T", DType::kFloat32}};
  const auto check = [&](const char* op, const Probe& probe,
                         const TypeBinding& binding) {
    const ProbeCase c =
        MakeProbeCase(OpTable::Global().Get(op), probe, binding);
    CheckCount(c, c.node->input(0).shape().ToString());
  };
  // One and several segments, of rows, columns and both.
  for (const int64_t n : {5, 16000, 40000}) {
    check("Sum", {.inputs = {{.shape = {n}}}}, f32);
    check("Max", {.inputs = {{.shape = {2, n}}}, .attrs = {{"axes", Ints{1}}}},
          f32);
  }
  for (const int64_t n : {5, 512, 1300}) {
    check("Mean", {.inputs = {{.shape = {n, 3}}}, .attrs = {{"axes", Ints{0}}}},
          f32);
    check("Sum",
          {.inputs = {{.shape = {n, 3, 17}}}, .attrs = {{"axes", Ints{0, 2}}}},
          f32);
  }
  for (const int64_t n : {256, 257, 1100}) {
    check("ScatterAdd",
          {.inputs = {{.shape = {4, 3}},
                      {.shape = {n}, .values = {3, 0, 3, 1}},
                      {.shape = {n, 3}}}},
          {{"T", DType::kFloat32}, {"I", DType::kInt64}});
  }
}

// A node of `count` operands.
template <typename ShapeOf>
ProbeCase CaseOf(NodeRequest request, int count, DType dtype, ShapeOf shape) {
  ProbeCase c;
  c.graph = std::make_unique<Graph>();
  for (int i = 0; i < count; ++i) {
    request.inputs.push_back(
        c.graph->Placeholder(fmt::format("x{}", i), dtype, shape(i)));
    c.values.push_back(RandomTensor(dtype, shape(i), -1, 1));
  }
  c.node = &c.graph->Add(std::move(request));
  return c;
}

// More arrays than a launch takes.
TEST_CASE("lists are launched as often as is said") {
  RegisterGpu();
  if (OnRealGpu()) return;
  for (int count : {1, 256, 257, 600}) {
    CAPTURE(count);
    for (const char* op : {"CastList", "AllFinite"}) {
      NodeRequest request{op, {}, {}, {}};
      if (std::string_view(op) == "CastList") {
        request.attrs.Set("to", DType::kFloat16);
      }
      CheckCount(CaseOf(std::move(request), count, DType::kFloat32,
                        [](int i) { return Shape{1 + i % 3}; }),
                 fmt::format("{} arrays", count));
    }
  }
}

// A launch beyond the first has the sum so far among them.
TEST_CASE("long sums are launched as often as is said") {
  RegisterGpu();
  if (OnRealGpu()) return;
  const auto shape = [](int) { return Shape{40}; };
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64}) {
    for (const auto& [count, launches] : std::map<int, size_t>{
             {1, 1}, {256, 1}, {257, 2}, {511, 2}, {512, 3}, {766, 3}}) {
      CAPTURE(count);
      const ProbeCase c = CaseOf({"AddN", {}, {}, {}}, count, dtype, shape);
      CHECK(LaunchesOf(*c.node).size() == launches);
      CheckCount(c, fmt::format("{} terms", count));
    }
  }
}

TEST_CASE("a fused sum has a second kernel where it is said to") {
  std::mt19937 random(7);  // NOLINT: the same in every run
  const auto draw = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  int once = 0, twice = 0;
  for (int i = 0; i < 400; ++i) {
    const Shape shape = {draw(3000), draw(i % 2 == 0 ? 30 : 3000)};
    const bool leading = draw(2) == 1;
    const DType dtype = draw(2) == 1 ? DType::kFloat32 : DType::kFloat16;
    Graph graph;
    const Output x = graph.Placeholder("x", dtype, shape);
    const Node& node =
        graph.Add({"FusedSum",
                   {x},
                   {{"program", "Exp(0)"},
                    {"outputs", std::vector<int64_t>{1}},
                    {"shape", shape},
                    {"sum", leading ? "leading" : "trailing"},
                    {"sum_shape", leading ? Shape{shape[1]} : Shape{shape[0]}},
                    {"sum_scale", 1.0}}});
    const KernelSpec spec = SpecOf(node, /*deterministic=*/false);
    const cuda::FusedWork work =
        cuda::FusedWorkOf(spec, cuda::FusedPack(spec), /*states=*/false)
            .ValueOrThrow();
    const size_t wanted = work.arguments.sum.states ? 2 : 1;
    ++(wanted == 2 ? twice : once);
    CHECK(LaunchesOf(node).size() == wanted);
  }
  CHECK(once > 20);
  CHECK(twice > 20);
}

TEST_CASE("a ReLU behind cuBLASLt's product is counted as one alone is") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    Graph graph;
    const Output a = graph.Placeholder("a", dtype, {4, 5});
    const Output b = graph.Placeholder("b", dtype, {5, 3});
    const Output bias = graph.Placeholder("bias", dtype, {3});
    const auto product = [&](bool relu) -> const Node& {
      return graph.Add({"MatMulBias", {a, b, bias}, {{"relu", relu}}});
    };
    const Node &plain = product(false), &with = product(true);
    const Node& relu = graph.Add({"Relu", {plain.output(0)}});
    std::vector<KernelLaunch> wanted = LaunchesOf(plain);
    std::vector<int64_t> bytes = {wanted.at(0).Bytes(plain)};
    wanted.push_back(LaunchesOf(relu).at(0));
    bytes.push_back(wanted.back().Bytes(relu));
    const std::vector<KernelLaunch> launches = LaunchesOf(with);
    REQUIRE(launches.size() == 2);
    for (size_t i = 0; i < launches.size(); ++i) {
      CHECK(launches[i].kernel == wanted[i].kernel);
      CHECK(launches[i].kind == wanted[i].kind);
      CHECK(launches[i].Bytes(with) == bytes[i]);
      CHECK(launches[i].multiply_adds == wanted[i].multiply_adds);
    }
  }
}

// --- Bytes -------------------------------------------------------------------

// Of inputs, then of outputs.
struct Bytes {
  std::vector<int64_t> read, written;
};

Bytes Stated(const Node& node) {
  const auto inputs = static_cast<size_t>(node.num_inputs());
  Bytes bytes;
  bytes.read.resize(inputs + static_cast<size_t>(node.num_outputs()));
  bytes.written = bytes.read;
  for (const KernelLaunch& launch : LaunchesOf(node)) {
    for (const Moved& m : launch.moved) {
      const size_t at = static_cast<size_t>(m.index) + (m.result ? inputs : 0);
      const TensorType& type =
          m.result ? node.output_type(m.index) : node.input(m.index).type();
      bytes.read[at] += m.reads * static_cast<int64_t>(type.bytes());
      bytes.written[at] += m.writes * static_cast<int64_t>(type.bytes());
    }
  }
  return bytes;
}

// Counts what a node's kernel moves, and checks it for every operand of at
// least `least` elements: what is small is read again and again from a cache.
// Returns the bytes that it moves in scratch memory.
int64_t CheckTraffic(const ProbeCase& c, int64_t least) {
  const Node& node = *c.node;
  const KernelSpec spec = SpecOf(node, /*deterministic=*/false);
  const auto all = KernelTable::Global().FindAll(spec, DeviceType::kCuda);
  REQUIRE_FALSE(all.empty());
  const KernelPtr kernel = all[0]->make(spec).ValueOrThrow();
  std::vector<DeviceBuffer> buffers;
  std::vector<void*> at;
  std::vector<const TensorType*> types;
  for (int i = 0; i < node.num_inputs(); ++i) {
    buffers.emplace_back(c.values[static_cast<size_t>(i)]);
    at.push_back(buffers.back().get());
    types.push_back(&node.input(i).type());
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    const bool updated = i == 0 && node.mutates() > 0;
    buffers.emplace_back(updated ? 1 : node.output_type(i).bytes());
    at.push_back(updated ? at[0] : buffers.back().get());
    types.push_back(&node.output_type(i));
  }
  const DeviceBuffer workspace(kernel->workspace_bytes() + 1);
  const Traffic aside(workspace.get(), kernel->workspace_bytes() + 1);
  std::vector<std::unique_ptr<Traffic>> traffic;
  for (size_t i = 0; i < at.size(); ++i) {
    if (i < static_cast<size_t>(node.num_inputs()) || at[i] != at[0]) {
      traffic.push_back(std::make_unique<Traffic>(at[i], types[i]->bytes()));
    }
  }
  const StepContext step;
  const KernelContext context(at.data(), at.data() + node.num_inputs(),
                              workspace.get(), &step);
  ThrowIfError(RunKernel(*kernel, context));
  const Bytes stated = Stated(node);
  int checked = 0;
  for (size_t i = 0; i < traffic.size(); ++i) {
    if (types[i]->shape.elements() < least) continue;
    ++checked;
    CHECK_MESSAGE(traffic[i]->loaded == stated.read[i], spec.op, " ",
                  NameOf(spec.inputs[0].dtype), " reads operand ", i);
    CHECK_MESSAGE(traffic[i]->stored == stated.written[i], spec.op, " ",
                  NameOf(spec.inputs[0].dtype), " writes operand ", i);
  }
  CHECK(checked > 1);
  return aside.loaded + aside.stored;
}

TEST_CASE("kernels that move the most move what is said") {
  RegisterGpu();
  if (OnRealGpu()) return;
  const int64_t rows = 1100;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const TypeBinding binding = {{"T", dtype}};
    const auto check = [&](const char* op, const Probe& probe, int64_t least) {
      const ProbeCase c =
          MakeProbeCase(OpTable::Global().Get(op), probe, binding);
      CheckTraffic(c, least);
    };
    const ProbeInput image = {.shape = {rows, 24}}, channel = {.shape = {24}};
    const ProbeInput variance = {.shape = {24}, .lo = 0.5, .hi = 2};
    const ProbeInput mask = {.shape = {rows * 24 / 8},
                             .values = {1, 200, 77, 0, 255, 3, 90, 129}};
    const int64_t least = rows * 3;
    const Probe forward = {
        .inputs = {image, channel, channel, channel, variance}};
    const Probe with_addend = {
        .inputs = {image, channel, channel, channel, variance, image}};
    for (const char* op : {"BatchNorm", "BatchNormRelu", "BatchNormInference",
                           "BatchNormApply", "BatchNormApplyRelu"}) {
      check(op, forward, least);
    }
    for (const char* op : {"BatchNormAddRelu", "BatchNormApplyAddRelu"}) {
      check(op, with_addend, least);
    }
    // Sums that are those of such an image, more or less.
    const ProbeInput squares = {.shape = {24}, .lo = 300, .hi = 400};
    for (const char* op : {"BatchNormBySums", "BatchNormReluBySums"}) {
      check(op,
            {.inputs = {image, channel, channel, channel, variance, channel,
                        squares}},
            least);
    }
    check("BatchNormAddReluBySums",
          {.inputs = {image, channel, channel, channel, variance, image,
                      channel, squares}},
          least);
    check("BatchNormGrad",
          {.inputs = {image, channel, channel, variance, image}}, least);
    for (const char* op : {"BatchNormReluGrad", "BatchNormAddReluGrad"}) {
      check(op, {.inputs = {image, channel, channel, variance, mask, image}},
            least);
      check(op,
            {.inputs = {image, channel, channel, variance, mask, image, image}},
            least);
    }
    check("Relu", {.inputs = {image}}, least);
    check("Add", {.inputs = {image, image}}, least);
    check("ReluGrad", {.inputs = {image, image}}, least);
    check("Cast", {.inputs = {image}, .attrs = {{"to", DType::kFloat64}}},
          least);
  }
  const ProbeInput tensor = {.shape = {4100}};
  const ProbeInput rate = {.values = {0.1}}, one = {.values = {1}};
  for (const bool half : {false, true}) {
    const ProbeInput gradient = {.shape = {4100}, .half = half};
    const ProbeCase c =
        MakeProbeCase(OpTable::Global().Get("ApplyMomentumList"),
                      {.inputs = {tensor, tensor, tensor, tensor, gradient,
                                  gradient, rate, one, one},
                       .attrs = {{"variables", 2}}},
                      {{"T", DType::kFloat32}});
    CheckTraffic(c, 4100);
  }
}

TEST_CASE("long sums move what is said, of halves in scratch memory too") {
  RegisterGpu();
  if (OnRealGpu()) return;
  const auto shape = [](int) { return Shape{40}; };
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int count : {9, 300, 600}) {
      CAPTURE(count);
      const ProbeCase c = CaseOf({"AddN", {}, {}, {}}, count, dtype, shape);
      int64_t aside = 0;
      for (const KernelLaunch& launch : LaunchesOf(*c.node)) {
        aside += launch.extra_bytes;
      }
      CHECK(CheckTraffic(c, 40) == aside);
      CHECK((aside > 0) == (count > 256 && dtype == DType::kBFloat16));
    }
  }
}

}  // namespace
}  // namespace sluice::testing
