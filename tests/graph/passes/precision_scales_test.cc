// Float16, and what is divided or multiplied by numbers, or divides one, that
// are known when the step runs: half would take a large one for infinity and a
// small one for 0. That the rest stays in half is in
// cases/precision_scales.txt.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/precision.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"

namespace sluice {
namespace {

// The largest difference to what is wanted, relative to the largest element;
// NaN if any is.
double Apart(const Tensor& got, const Tensor& wanted) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double here = std::abs(got.At(i) - wanted.At(i));
    if (std::isnan(here)) return here;
    difference = std::max(difference, here);
    size = std::max(size, std::abs(wanted.At(i)));
  }
  return difference / size;
}

SessionOptions With(Precision precision, bool fuse) {
  SessionOptions options;
  options.precision = precision;
  options.fuse = fuse;
  return options;
}

struct Scaling {
  const char* name;
  // Scales h; what is to be fed for that goes to `feeds`.
  std::function<Output(const Output& h, std::vector<Feed>* feeds)> scale;
};

Output FedNumber(Graph& graph, float number, std::vector<Feed>* feeds) {
  const Output fed = graph.Placeholder("fed", DType::kFloat32, {});
  feeds->push_back({fed, Tensor::Scalar(number)});
  return fed;
}

std::vector<Scaling> Scalings() {
  return {
      {"by a sum, of 131072 in the first row",
       [](const Output& h, std::vector<Feed>*) {
         return h / Sum(Abs(h), {1}, /*keep_dims=*/true);
       }},
      {"by a sum and a half",
       [](const Output& h, std::vector<Feed>*) {
         return h / (Abs(h) + Sum(Abs(h), {1}, /*keep_dims=*/true));
       }},
      {"by a count",
       [](const Output& h, std::vector<Feed>* feeds) {
         const Output count = h.graph().Placeholder("count", DType::kInt64, {});
         feeds->push_back({count, Tensor::Scalar(int64_t{100'000})});
         return h / Cast(count, DType::kFloat32);
       }},
      {"by what is fed",
       [](const Output& h, std::vector<Feed>* feeds) {
         return h / FedNumber(h.graph(), 1e5F, feeds);
       }},
      {"by a constant of several numbers",
       [](const Output& h, std::vector<Feed>*) {
         return h / h.graph().Constant(
                        Tensor::Array<float>({4}, {1e5F, 2e5F, 3e5F, 1e5F}));
       }},
      {"with a factor that is fed",
       [](const Output& h, std::vector<Feed>* feeds) {
         return h * FedNumber(h.graph(), 1e-8F, feeds);
       }},
      {"as the divisor of what is fed",
       [](const Output& h, std::vector<Feed>* feeds) {
         return FedNumber(h.graph(), 1e6F, feeds) / h;
       }},
  };
}

TEST_CASE("what is scaled by numbers beyond float16 is right, and its slope") {
  const Tensor rows = Tensor::Array<float>(
      {2, 4}, {32768, 32768, 32768, 32768, 20000, 30000, 40000, 50000});
  for (const Scaling& scaling : Scalings()) {
    CAPTURE(std::string(scaling.name));
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2, 4});
    const Output identity = graph.Constant(Tensor::Array<float>(
        {4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}));
    const Output mixed = graph.Constant(Tensor::Array<float>(
        {4, 4},
        {1, 0.5, 0.25, 0, 0, 2, 0.5, 1, 0.5, 0.25, 0, 0.25, 1, 1, 1, 0.5}));
    std::vector<Feed> feeds = {{x, rows}};
    const Output h = MatMul(x, identity);
    const Output y = MatMul(scaling.scale(h, &feeds), mixed);
    // Large, or else the gradients of x would be below float16's range.
    const Output seed =
        graph.Constant(Tensor::Full(DType::kFloat32, {2, 4}, 1e4));
    const std::vector<Output> fetches = {y, Gradients({y}, {x}, {seed})[0]};
    const std::vector<Tensor> wanted =
        Session(graph, With(Precision::kFloat32, true)).Run(feeds, fetches);
    for (const bool fuse : {true, false}) {
      CAPTURE(fuse);
      Session session(graph, With(Precision::kFloat16, fuse));
      const std::vector<Tensor> got = session.Run(feeds, fetches);
      CHECK(Apart(got[0], wanted[0]) < 5e-3);
      CHECK(Apart(got[1], wanted[1]) < 5e-3);
      CHECK(Apart(got[0], wanted[0]) > 0);  // products are of halves
    }
  }
}

// Puts the gradient through a product, and leaves it as it is.
void Look(MinimizeContext& context, std::vector<GradientAndVariable>& pairs) {
  const Output& gradient = pairs[0].gradient;
  const Output seen =
      context.graph.Variable("seen", Zeros({4, 4}), {.trainable = false});
  context.operations.push_back(
      Assign(seen, MatMul(gradient, gradient, {.transpose_b = true})));
}

// A weight after a step whose gradients are too small for float16 without the
// scale, and of about 1e-4 with it. The update is of about 1.
Tensor Stepped(Precision precision, double scale, bool looks, bool fuse) {
  const double small = 0x1p-12 / scale;
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {6, 4});
  const Output w = graph.Variable("w", Filled(0.5, {4, 4}));
  const Output loss = Sum(MatMul(x, w)) * small;
  Optimizer optimizer = optimizers::Sgd(1 / small);
  if (looks) optimizer = optimizer.With(Look);
  const Operation train =
      optimizer.WithLossScaling({.initial = scale}).Minimize(loss);
  Tensor value(DType::kFloat32, {6, 4});
  for (int64_t i = 0; i < value.elements(); ++i) {
    value.data<float>()[i] = 0.1F + 0.03F * static_cast<float>(i % 7);
  }
  Session session(graph, With(precision, fuse));
  session.Initialize();
  session.Run({{x, value}}, train);
  CHECK(session.Read(graph.Get("loss_scale/skipped_steps")).At(0) == 0);
  return session.Read(w);
}

TEST_CASE("a hook that multiplies gradients leaves them float32") {
  for (const double scale : {0x1p15, 0x1p26}) {
    for (const bool fuse : {true, false}) {
      CAPTURE(scale);
      CAPTURE(fuse);
      const Tensor exact = Stepped(Precision::kFloat32, scale, false, fuse);
      const Tensor plain = Stepped(Precision::kFloat16, scale, false, fuse);
      const Tensor looked = Stepped(Precision::kFloat16, scale, true, fuse);
      CHECK(std::abs(exact.At(0) - 0.5) > 0.5);
      CHECK(Apart(plain, exact) < 5e-3);
      CHECK(looked.BitEqual(plain));
    }
  }
}

}  // namespace
}  // namespace sluice
