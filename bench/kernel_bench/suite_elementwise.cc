// Elementwise ops, alone and in a chain, on sizes of ResNet-50 and small ones.
#include <algorithm>
#include <cmath>

#include "bench/kernel_bench/peers.h"
#include "engine/random.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session.h"

namespace sluice::bench {
namespace {

// 51 MB: the largest activations of ResNet-50 at batch 16.
constexpr int64_t kLarge[] = {16, 56, 56, 256};

Shape Large() {
  return Shape(kLarge);
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

void AddBias(std::vector<Case>& cases) {
  Graph graph;
  const Output y =
      BiasAdd(Input(graph, "x", Large()), Input(graph, "b", {256}));
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
    const bool keep = stream.Block(at / 4)[at % 4] >= 0x80000000u;
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
    return static_cast<double>(uniform.Block(at / 4)[at % 4] >> 8) * 0x1p-24;
  };
  cases.push_back(c);
}

// --- The chain ---------------------------------------------------------------

Output Chain(const Output& x, const Output& a) {
  return Relu((x * a + 1.0) * 0.5 - x) * a;
}

// A session's whole step, so that what the passes make of the chain counts.
struct ChainStep {
  Graph graph;
  std::unique_ptr<Session> session;
  PreparedStep step;
  std::vector<Tensor> feeds, fetches;
};

Subject MakeChain(const Shape& shape) {
  auto chain = std::make_shared<ChainStep>();
  const Output x = Input(chain->graph, "x", shape);
  const Output a = Input(chain->graph, "a", shape);
  const Output y = Chain(x, a);
  chain->session = std::make_unique<Session>(chain->graph);
  chain->step = chain->session->Prepare({{x, shape}, {a, shape}}, {y});
  // The operands of any kernel of two inputs.
  Graph other;
  const Subject sum =
      CaseOf("", "",
             (Input(other, "x", shape) + Input(other, "a", shape)).node())
          .make("");
  chain->feeds = sum.inputs;
  chain->fetches = chain->step.MakeFetches();
  Subject subject;
  subject.provider = "session";
  subject.inputs = chain->feeds;
  subject.results = chain->fetches;
  subject.run = [chain] { chain->step.Run(chain->feeds, chain->fetches); };
  return subject;
}

}  // namespace

std::vector<Case> ElementwiseCases() {
  std::vector<Case> cases;
  AddArithmetic(Large(), cases);
  AddArithmetic({100, 1024}, cases);
  AddBias(cases);
  AddRandom({100, 1024}, cases);
  AddRandom({16, 56, 56, 64}, cases);
  return cases;
}

std::vector<Case> ChainCases() {
  std::vector<Case> cases;
  for (int64_t n : {int64_t{1} << 18, int64_t{1} << 24}) {
    Case c;
    c.suite = "chain";
    c.op = "6 ops";
    c.shape = Shape{n}.ToString();
    c.bytes = 12.0 * static_cast<double>(n);
    c.make = [n](const std::string&) { return MakeChain({n}); };
    c.make_peer = PeerLoop(ChainLoop);
    c.reference = [](const std::vector<Tensor>& in, int, int64_t i) {
      const double x = F(in[0], i), a = F(in[1], i);
      return std::max((x * a + 1) * 0.5 - x, 0.0) * a;
    };
    cases.push_back(c);
  }
  return cases;
}

}  // namespace sluice::bench
