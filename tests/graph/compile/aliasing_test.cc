// One tensor in several places of an op. Steps are run as ever, which reuses
// memory, and checked (ExecutorMode::kChecked), which does not: the bits are
// the same, or a kernel has read what was overwritten.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/guarded_run.h"
#include "tests/support/op_probe.h"
#include "tests/support/random_network.h"

namespace sluice::testing {
namespace {

std::vector<Tensor> RunSteps(const Graph& graph, SessionOptions options,
                             const std::vector<Feed>& feeds,
                             const std::vector<Output>& fetches, bool frozen) {
  Session session(graph, options);
  session.Initialize();
  if (frozen) session.Freeze();
  return session.Run(feeds, fetches);
}

// Compares with and without reuse; returns what came of it.
std::vector<Tensor> CheckReuse(const Graph& graph, SessionOptions options,
                               const std::vector<Feed>& feeds,
                               const std::vector<Output>& fetches,
                               bool frozen = false) {
  const auto reused = RunSteps(graph, options, feeds, fetches, frozen);
  options.executor = ExecutorMode::kChecked;
  const auto apart = RunSteps(graph, options, feeds, fetches, frozen);
  for (size_t i = 0; i < apart.size(); ++i) {
    CHECK_MESSAGE(reused[i].BitEqual(apart[i]),
                  fetches[i].name() << ": " << reused[i].ToString()
                                    << ", apart " << apart[i].ToString());
  }
  return apart;
}

// --- Every op that may take over a buffer ------------------------------------

// y = op(..., t, ..., t again, ...): input `i` and input `j` are one tensor, of
// which `j` sees another shape where it must.
void CheckPair(const OpDef& op, const Probe& probe, const TypeBinding& binding,
               int i, int j) {
  const ProbeCase c = MakeProbeCase(op, probe, binding);
  Graph graph;
  std::vector<Feed> feeds;
  NodeRequest request{op.name, {}, c.node->attrs()};
  std::vector<Output> inputs;
  for (int k = 0; k < c.node->num_inputs(); ++k) {
    const Tensor& value = c.values[k];
    if (c.node->input(k).node().Is("Const")) {
      inputs.push_back(graph.Constant(value));
      continue;
    }
    const Output feed = graph.Placeholder("x" + std::to_string(k),
                                          value.dtype(), value.shape());
    feeds.push_back({feed, value});
    // Not the feed itself, whose buffer is the caller's.
    inputs.push_back(graph.Add({"Copy", {feed}}).output(0));
  }
  inputs[j] = Reshape(inputs[i], c.values[j].shape());
  for (const Output& input : inputs) request.inputs.emplace_back(input);
  const Node& node = graph.Add(std::move(request));
  std::vector<Output> fetches;
  for (int k = 0; k < node.num_outputs(); ++k) {
    fetches.push_back(node.output(k));
  }
  std::erase_if(feeds, [&](const Feed& feed) {
    return feed.output.name() == "x" + std::to_string(j);
  });
  for (const bool fuse : {true, false}) {
    CheckReuse(graph, {.fuse = fuse}, feeds, fetches);
  }
}

bool MayBeOne(const ProbeCase& c, int i, int j) {
  return i != j && c.values[i].dtype() == c.values[j].dtype() &&
         c.values[i].elements() == c.values[j].elements() &&
         !c.node->input(i).node().Is("Const") &&
         !c.node->input(j).node().Is("Const");
}

TEST_CASE("every op that takes over a buffer, given it twice") {
  int pairs = 0;
  for (const OpDef* op : OpTable::Global().All()) {
    if (op->inplace.empty() || op->mutates > 0) continue;
    bool tried = false, could = false;
    for (const Probe& probe : op->probes) {
      for (TypeBinding binding : OtherBindings(*op)) {
        const ProbeCase c = MakeProbeCase(*op, probe, binding);
        for (int i : op->inplace) {
          for (int j = 0; j < c.node->num_inputs() && i < c.node->num_inputs();
               ++j) {
            could |= i != j && c.values[i].dtype() == c.values[j].dtype() &&
                     c.values[i].shape().rank() == c.values[j].shape().rank();
            if (!MayBeOne(c, i, j)) continue;
            CAPTURE(std::string(op->name));
            CAPTURE(ToString(binding));
            CAPTURE(i);
            CAPTURE(j);
            CheckPair(*op, probe, binding, i, j);
            tried = true;
            ++pairs;
          }
        }
      }
    }
    CHECK_MESSAGE(tried == could,
                  std::string(op->name)
                      << ": no probe has two inputs of one size, so that "
                         "they could be one tensor; add such a probe");
  }
  CHECK(pairs > 100);
}

// --- What fusion and freezing make -------------------------------------------

// Gradients may be 0 but for rounding.
constexpr Allowance kReordered = {.relative = 2e-4, .absolute = 2e-4};

TEST_CASE("random networks in which tensors meet themselves") {
  for (uint32_t seed = 1; seed <= 240; ++seed) {
    CAPTURE(seed);
    Graph graph;
    RandomNetwork network(graph, seed, 2 + static_cast<int>(seed) % 7);
    if (seed % 3 == 0) {
      network.AddGradients(
          {.recompute = seed % 2 == 0 ? Recompute::kAll : Recompute::kNone});
    }
    const std::vector<Feed> feeds = network.Feeds();
    const auto check = [&](const SessionOptions& options, bool frozen) {
      return CheckReuse(graph, options, feeds, network.fetches(), frozen);
    };
    const auto plain = check({.simplify = false, .fuse = false}, false);
    const auto fused = check({}, false);
    const auto frozen = check({}, true);
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      CHECK_EQ(Difference({fused[i]}, {plain[i]}, kReordered), "");
      CHECK_EQ(Difference({frozen[i]}, {plain[i]}, kReordered), "");
    }
    check({.executor = ExecutorMode::kDataflow}, false);
    check({.precision = Precision::kFloat16}, false);
  }
}

TEST_CASE("random networks over two devices") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Graph graph;
    std::mt19937 random(seed);
    RandomNetwork network(graph, seed, 5);
    const auto one = RunSteps(graph, {.fuse = false}, network.Feeds(),
                              network.fetches(), false);
    // A quarter of the nodes elsewhere; variables and their first values stay.
    for (const auto& node : graph.nodes()) {
      const bool stays = node->name().find("init") != std::string::npos ||
                         node->Is("Variable") || node->mutates() > 0;
      node->set_device(!stays && random() % 4 == 0 ? "/cpu:1" : "/cpu:0");
    }
    SessionOptions options;
    options.devices = {"/cpu:0", "/cpu:1"};
    const auto two =
        CheckReuse(graph, options, network.Feeds(), network.fetches());
    for (size_t i = 0; i < one.size(); ++i) {
      CHECK_EQ(Difference({two[i]}, {one[i]}, kReordered), "");
    }
  }
}

// --- The fault that began it -------------------------------------------------

TEST_CASE("a convolution whose addend is its input") {
  for (const int64_t channels : {16, 5}) {
    for (const int64_t k : {3, 5}) {
      Graph graph;
      const Shape shape = {1, 8, 8, channels};
      const Output x = graph.Placeholder("x", DType::kFloat32, shape);
      const Output w =
          graph.Variable("w", Filled(0.1, {k, k, channels, channels}));
      const Output b = graph.Variable("b", Zeros({channels}));
      const Output a = Relu(x);
      const Output y = a + BiasAdd(Conv2D(a, w), b);
      Session session(graph);
      session.Initialize();
      const Tensor got =
          session.Run({{x, Tensor::Full(DType::kFloat32, shape, 1)}}, y);
      // In the middle the whole window is on the image.
      const auto middle = (3 * 8 + 3) * channels;
      CHECK(got.At(middle) ==
            doctest::Approx(1 + 0.1 * static_cast<double>(k * k * channels)));
    }
  }
}

// --- The checked executor finds what it is for -------------------------------

OpDef Misbehaving(const char* name) {
  return {.name = name,
          .doc = "Made wrong on purpose.",
          .inputs = {{"x"}},
          .gradient = NotDifferentiable,
          .probes = {{.inputs = {{.shape = {5}}}}}};
}

std::string ErrorOf(const char* name, void (*run)(const KernelContext&)) {
  OpTable::Global().Register(Misbehaving(name));
  KernelTable::Global().Register(
      {.op = name, .make = [run](const KernelSpec&) -> Result<KernelPtr> {
         return KernelOf(run);
       }});
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {5});
  const Output y = graph.Add({name, {Exp(x)}}).output(0);
  Session session(graph, {.executor = ExecutorMode::kChecked, .fuse = false});
  try {
    session.Run({{x, Tensor::Full(DType::kFloat32, {5}, 1)}}, y);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a checked run finds a kernel that changes its input") {
  const std::string error =
      ErrorOf("FaultyChanger", [](const KernelContext& c) {
        std::fill_n(c.output<float>(0), 5, 1.0f);
        const_cast<float*>(c.input<float>(0))[2] = 7;
      });
  CHECK(error.find("changed input 0") != error.npos);
  CHECK(error.find("aliasing_test.cc") != error.npos);
}

TEST_CASE("a checked run finds a kernel that writes too far") {
  const std::string behind = ErrorOf(
      "FaultyBehind",
      [](const KernelContext& c) { std::fill_n(c.output<float>(0), 6, 1.0f); });
  CHECK(behind.find("around output 0") != behind.npos);
  const std::string before =
      ErrorOf("FaultyBefore", [](const KernelContext& c) {
        std::fill_n(c.output<float>(0) - 1, 6, 1.0f);
      });
  CHECK(before.find("around output 0") != before.npos);
}

}  // namespace
}  // namespace sluice::testing
