// Activations far from 0, where what their formulas are made of is 0 or an
// infinity.
#include "graph/ops/activation.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice {
namespace {

struct Activation {
  std::string name;
  std::function<Output(const Output& x)> of;
};

std::vector<Activation> Activations() {
  return {{"Tanh", [](const Output& x) { return Tanh(x); }},
          {"Sigmoid", [](const Output& x) { return Sigmoid(x); }},
          {"Softplus", [](const Output& x) { return Softplus(x); }},
          {"Softsign", [](const Output& x) { return Softsign(x); }},
          {"Relu", [](const Output& x) { return Relu(x); }},
          {"Relu6", [](const Output& x) { return Relu6(x); }},
          {"LeakyRelu", [](const Output& x) { return LeakyRelu(x); }},
          {"Elu", [](const Output& x) { return Elu(x); }},
          {"Selu", [](const Output& x) { return Selu(x); }},
          {"Gelu", [](const Output& x) { return Gelu(x); }},
          {"Gelu, approximate", [](const Output& x) { return Gelu(x, true); }},
          {"Silu", [](const Output& x) { return Silu(x); }}};
}

// Each node rounds: in half its result has to fit.
Tensor SecondDerivatives(const Activation& activation, const Tensor& at) {
  Graph graph;
  const Output x = graph.Placeholder("x", at.dtype(), at.shape());
  const Output first = GradientsOrZeros({activation.of(x)}, {x})[0];
  const Output second = GradientsOrZeros({first}, {x})[0];
  Session session(graph, {.fuse = false});
  return session.Run({{x, at}}, second);
}

TEST_CASE("second derivatives far from 0 are numbers") {
  struct Far {
    DType dtype;
    double x;
  };
  for (const Far& far : {Far{DType::kFloat16, 300}, Far{DType::kBFloat16, 300},
                         Far{DType::kFloat32, 1e20}}) {
    CAPTURE(NameOf(far.dtype));
    const Tensor at =
        Tensor::Array<double>({4}, {-far.x, -20, 20, far.x}).Cast(far.dtype);
    for (const Activation& activation : Activations()) {
      CAPTURE(activation.name);
      const Tensor got = SecondDerivatives(activation, at);
      const Tensor wanted =
          SecondDerivatives(activation, at.Cast(DType::kFloat64));
      for (int64_t i = 0; i < 4; ++i) {
        CAPTURE(at.At(i));
        CHECK(std::abs(got.At(i) - wanted.At(i)) < 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
