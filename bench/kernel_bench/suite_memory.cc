// Optimizer steps, and plain copies.
#include <cmath>

#include "bench/kernel_bench/peers.h"
#include "graph/builder.h"

namespace sluice::bench {
namespace {

constexpr int64_t kResnet50 = 25'557'032;  // parameters

// A variable's inputs, then the learning rate, last the gradient.
Case UpdateCase(const Output& y) {
  return CaseOf("optimizer", "update", y.node(), [](int, Tensor& value) {
    if (value.shape().rank() > 0) return;
    value = value.dtype() == DType::kFloat32 ? Tensor::Scalar(1e-3f)
                                             : Tensor::Scalar(int64_t{3});
  });
}

void AddUpdates(int64_t n, std::vector<Case>& cases) {
  Graph graph;
  const Output p = graph.Variable("p", Zeros({n}));
  const Output v = graph.Variable("v", Zeros({n}));
  const Output s = graph.Variable("s", Ones({n}));
  const Output g = graph.Placeholder("g", DType::kFloat32, {n});
  const Output rate = graph.Placeholder("rate", DType::kFloat32, {});
  const double lr = static_cast<double>(1e-3f);

  Case c = UpdateCase(ApplySgd(p, rate, g));
  c.reference = [lr](const std::vector<Tensor>& in, int, int64_t i) {
    return F(in[0], i) - lr * F(in[2], i);
  };
  c.make_peer = [](const Subject& ours) {
    Tensor to = ours.inputs[0].Clone();
    const Tensor from = ours.inputs[2];
    return LoopPeer(
        [=]() mutable {
          SgdLoop(from.data<float>(), to.data<float>(), 1e-3f, to.elements());
        },
        {to});
  };
  cases.push_back(c);

  c = UpdateCase(ApplyMomentum(p, v, rate, g));
  c.reference = [lr](const std::vector<Tensor>& in, int result, int64_t i) {
    const double velocity = 0.9 * F(in[1], i) + F(in[3], i);
    return result == 1 ? velocity : F(in[0], i) - lr * velocity;
  };
  c.make_peer = [](const Subject& ours) {
    Tensor to = ours.inputs[0].Clone(), velocity = ours.inputs[1].Clone();
    const Tensor from = ours.inputs[3];
    return LoopPeer(
        [=]() mutable {
          MomentumLoop(from.data<float>(), velocity.data<float>(),
                       to.data<float>(), 1e-3f, 0.9f, to.elements());
        },
        {to, velocity});
  };
  cases.push_back(c);

  const Output step = graph.Placeholder("step", DType::kInt64, {});
  const Node& adam = ApplyAdam(p, v, s, rate, step, g).node();
  c = CaseOf("optimizer", "update", adam, [](int i, Tensor& value) {
    if (i == 2) {
      for (float& x : value.values<float>()) x = x * x;
    } else if (value.shape().rank() == 0) {
      value = i == 3 ? Tensor::Scalar(1e-3f) : Tensor::Scalar(int64_t{3});
    }
  });
  c.reference = [lr](const std::vector<Tensor>& in, int result, int64_t i) {
    const double gradient = F(in[5], i);
    const double m = 0.9 * F(in[1], i) + 0.1 * gradient;
    const double square = 0.999 * F(in[2], i) + 0.001 * gradient * gradient;
    if (result > 0) return result == 1 ? m : square;
    return F(in[0], i) -
           lr / (1 - std::pow(0.9, 3)) * m /
               (std::sqrt(square / (1 - std::pow(0.999, 3))) + 1e-8);
  };
  cases.push_back(c);
}

}  // namespace

std::vector<Case> OptimizerCases() {
  std::vector<Case> cases;
  AddUpdates(kResnet50, cases);
  AddUpdates(1 << 16, cases);
  return cases;
}

std::vector<Case> MemcpyCases() {
  std::vector<Case> cases;
  for (int64_t n : {1 << 15, 1 << 18, 1 << 21, 1 << 24}) {
    Graph graph;
    const Output to = graph.Variable("to", Zeros({n}));
    const Output from = graph.Placeholder("from", DType::kFloat32, {n});
    Case c = CaseOf("memcpy", "", Assign(to, from).node());
    c.shape = Shape{n}.ToString();
    c.bytes = 8.0 * static_cast<double>(n);
    c.reference = [](const std::vector<Tensor>& in, int, int64_t i) {
      return F(in[1], i);
    };
    c.make_peer = [n](const Subject& ours) {
      const Tensor x = ours.inputs[1];
      Tensor y = Tensor::Zeros(DType::kFloat32, x.shape());
      return LoopPeer(
          [=]() mutable {
            CopyLoop(x.data<float>(), y.data<float>(), n, Streams(4 * n));
          },
          {y});
    };
    cases.push_back(c);
  }
  return cases;
}

}  // namespace sluice::bench
