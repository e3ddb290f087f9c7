// Elementwise ops, alone and in a chain, on sizes of ResNet-50 and small ones.
#include <algorithm>
#include <cmath>

#include "bench/kernel_bench/peers.h"
#include "engine/semantics/random.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"

namespace sluice::bench {
namespace {

// The largest activations of ResNet-50, 51 MB at batch 16.
Shape Large(int64_t images) {
  return {images, 56, 56, 256};
}

Output Input(Graph& graph, const char* name, const Shape& shape) {
  return graph.Placeholder(name, DType::kFloat32, shape);
}

using Value = std::function<double(const std::vector<Tensor>& in, int64_t at)>;

Case Simple(const Output& y, const Value& value,
            const std::string& pass = "forward") {
  Case c = CaseOf("elementwise", pass, y.node());
  c.reference = [value](const std::vector<Tensor>& in, int, int64_t at) {
    return value(in, at);
  };
  return c;
}

// A loop over x (and for two operands b) into a result of x's shape.
using Loop = void (*)(const float* x, const float* b, float* y, int64_t n);
std::function<Subject(const Subject&)> PeerLoop(Loop loop) {
  return [loop](const Subject& ours) {
    const Tensor x = ours.inputs[0], b = ours.inputs.back();
    Tensor y = Tensor::Zeros(DType::kFloat32, x.shape());
    return LoopPeer(
        [=]() mutable {
          loop(x.data<float>(), b.data<float>(), y.data<float>(), x.elements());
        },
        {y});
  };
}

void AddArithmetic(const Shape& shape, std::vector<Case>& cases) {
  Graph graph;
  const Output x = Input(graph, "x", shape), b = Input(graph, "b", shape);
  cases.push_back(Simple(x + b, [](const auto& in, int64_t i) {
    return F(in[0], i) + F(in[1], i);
  }));
  cases.back().make_peer = PeerLoop([](const float* u, const float* v, float* y,
                                       int64_t n) { AddLoop(u, v, y, n); });
  const Output y = Relu(x);
  cases.push_back(Simple(
      y, [](const auto& in, int64_t i) { return std::max(F(in[0], i), 0.0); }));
  cases.back().make_peer = PeerLoop([](const float* u, const float*, float* out,
                                       int64_t n) { ReluLoop(u, out, n); });
  // Inputs y and dy, in either order of the record.
  const Output dx = Gradients({y}, {x})[0];
  const int dy =
      dx.node().op().inputs[0].name == std::string_view("dy") ? 0 : 1;
  cases.push_back(Simple(
      dx,
      [dy](const auto& in, int64_t i) {
        return F(in[1 - dy], i) > 0 ? F(in[dy], i) : 0.0;
      },
      "backward"));
  cases.push_back(Simple(
      Exp(x), [](const auto& in, int64_t i) { return std::exp(F(in[0], i)); }));
}

void AddBias(int64_t images, std::vector<Case>& cases) {
  Graph graph;
  const Output y =
      BiasAdd(Input(graph, "x", Large(images)), Input(graph, "b", {256}));
  cases.push_back(Simple(y, [](const auto& in, int64_t i) {
    return F(in[0], i) + F(in[1], i % 256);
  }));
}

// The bits are those of the documented stream.
void AddRandom(const Shape& shape, std::vector<Case>& cases) {
  Graph graph;
  const Output y = Dropout(Input(graph, "x", shape), 0.5);
  Case c = CaseOf("elementwise", "forward", y.node());
  const RandomStream stream(StepContext().seed, HashName(c.spec.origin), 0, 0);
  c.reference = [stream](const std::vector<Tensor>& in, int result,
                         int64_t at) {
    // round(0.5 * (2^32 - 1)).
    const bool keep =
        stream.Block(at / 4)[static_cast<int>(at % 4)] >= 0x80000000u;
    if (result == 1) return keep ? 1.0 : 0.0;
    return keep ? 2 * F(in[0], at) : 0.0;
  };
  cases.push_back(c);
  c = CaseOf("elementwise", "backward",
             Gradients({y}, {y.node().input(0)})[0].node());
  c.reference = [](const std::vector<Tensor>& in, int, int64_t at) {
    return in[1].data<bool>()[at] ? 2 * F(in[0], at) : 0.0;
  };
  cases.push_back(c);
  c = CaseOf("elementwise", "forward",
             RandomUniform(graph, {shape.elements()}).node());
  c.shape = Shape{shape.elements()}.ToString();
  const RandomStream uniform(StepContext().seed, HashName(c.spec.origin), 0, 0);
  c.reference = [uniform](const std::vector<Tensor>&, int, int64_t at) {
    return static_cast<double>(
               uniform.Block(at / 4)[static_cast<int>(at % 4)] >> 8) *
           0x1p-24;
  };
  cases.push_back(c);
}

// --- The chain ---------------------------------------------------------------

// The node that the fusion pass makes of six ops.
Case ChainCase(int64_t n) {
  Graph graph;
  const Output x = Input(graph, "x", {n}), a = Input(graph, "a", {n});
  const Output s = Input(graph, "s", {}), t = Input(graph, "t", {});
  Relu((x * a + s) * t - x) * a;
  passes::Fuse(graph);
  const auto fused =
      std::find_if(graph.nodes().begin(), graph.nodes().end(),
                   [](const auto& node) { return node->Is("Fused"); });
  const Node& node = **fused;
  auto index = [&](const Output& input) {
    return std::find(node.inputs().begin(), node.inputs().end(), input) -
           node.inputs().begin();
  };
  Case c = CaseOf("chain", "forward", node);
  c.op = "6 ops";
  c.shape = Shape{n}.ToString();
  c.reference = [xi = index(x), ai = index(a), si = index(s), ti = index(t)](
                    const std::vector<Tensor>& in, int, int64_t i) {
    const double u = F(in[xi], i), v = F(in[ai], i);
    return std::max((u * v + F(in[si], 0)) * F(in[ti], 0) - u, 0.0) * v;
  };
  c.make_peer = [xi = index(x), ai = index(a), si = index(s),
                 ti = index(t)](const Subject& ours) {
    const auto& in = ours.inputs;
    Tensor y = Tensor::Zeros(DType::kFloat32, in[xi].shape());
    return LoopPeer(
        [x = in[xi], a = in[ai], s = in[si], t = in[ti], y]() mutable {
          ChainLoop(x.data<float>(), a.data<float>(), *s.data<float>(),
                    *t.data<float>(), y.data<float>(), x.elements());
        },
        {y});
  };
  return c;
}

}  // namespace

std::vector<Case> ElementwiseCases(int64_t images) {
  std::vector<Case> cases;
  AddArithmetic(Large(images), cases);
  AddArithmetic({100, 1024}, cases);
  AddBias(images, cases);
  AddRandom({100, 1024}, cases);
  AddRandom({images, 56, 56, 64}, cases);
  return cases;
}

std::vector<Case> ChainCases() {
  std::vector<Case> cases;
  for (int64_t n : {int64_t{1} << 18, int64_t{1} << 24}) {
    cases.push_back(ChainCase(n));
  }
  return cases;
}

}  // namespace sluice::bench
