// Minimize: ten steps of every optimizer against PyTorch's, gradient hooks
// against sums by hand, and what it says when there is nothing to train.
#include "models/optim/optimizers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "io/checkpoints/safetensors.h"
#include "tests/places.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

// A rate that is read from a table by step.
LearningRate FromTable(const Tensor& rates) {
  return {"table", [=](const Output& step) {
            return Gather(step.graph().Constant(rates), step);
          }};
}

Optimizer ForCase(const std::string& op, const nlohmann::json& h,
                  const LearningRate& rate) {
  if (op == "ApplySgd") return optimizers::Sgd(rate);
  if (op == "ApplyMomentum") {
    return h["nesterov"] ? optimizers::Nesterov(rate, h["momentum"])
                         : optimizers::Momentum(rate, h["momentum"]);
  }
  if (op == "ApplyRmsProp") {
    return optimizers::RmsProp(rate, {.decay = h["decay"],
                                      .momentum = h["momentum"],
                                      .epsilon = h["epsilon"]});
  }
  if (op == "ApplyAdagrad") {
    return optimizers::Adagrad(rate,
                               {.initial_accumulator = h["initial_accumulator"],
                                .epsilon = h["epsilon"]});
  }
  if (op == "ApplyAdam") {
    return optimizers::Adam(
        rate,
        {.beta1 = h["beta1"], .beta2 = h["beta2"], .epsilon = h["epsilon"]});
  }
  REQUIRE(op == "ApplyAdamW");
  return optimizers::AdamW(rate, {.weight_decay = h["weight_decay"],
                                  .beta1 = h["beta1"],
                                  .beta2 = h["beta2"],
                                  .epsilon = h["epsilon"]});
}

TEST_CASE("ten steps of every optimizer are PyTorch's") {
  const Safetensors golden =
      ReadSafetensors(SLUICE_SOURCE_DIR "/tests/golden/optimizers.safetensors")
          .ValueOrThrow();
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& t : golden.tensors) tensors[t.name] = t.tensor;
  REQUIRE(golden.metadata.size() >= 12);
  for (const auto& [name, text] : golden.metadata) {
    CAPTURE(name);
    const auto info = nlohmann::json::parse(text);
    Graph graph;
    const Output w = graph.Variable("w", CopyOf(tensors.at(name + "/initial")));
    const Output g = graph.Placeholder("g", DType::kFloat64, w.shape());
    const Operation train =
        ForCase(info["op"], info["hyperparameters"],
                FromTable(tensors.at(name + "/learning_rates")))
            .Minimize(Sum(w * g));
    Session session(graph);
    session.Initialize();
    const Tensor& gradients = tensors.at(name + "/gradients");
    for (int64_t step = 0; step < 10; ++step) {
      CAPTURE(step);
      session.Run({{g, gradients.Rows(step, step + 1).Reshaped(w.shape())}},
                  train);
      const Tensor now = session.Read(w);
      const Tensor wanted =
          tensors.at(name + "/parameters").Rows(step, step + 1);
      for (int64_t i = 0; i < now.elements(); ++i) {
        CHECK(now.At(i) == doctest::Approx(wanted.At(i)).epsilon(1e-6));
      }
    }
    CHECK(session.Read(GlobalStep(graph)).IntAt(0) == 10);
  }
}

TEST_CASE("slots are named after their variables and do not train") {
  Graph graph;
  const Output w = graph.Variable("fc/w", Zeros({2, 3}));
  const Output b = graph.Variable("fc/bias", Zeros({3}));
  optimizers::Adam(0.1).Minimize(Sum(Square(w + b)));
  CHECK(graph.Get("fc/w/m").shape() == Shape{2, 3});
  CHECK(graph.Get("fc/bias/v").shape() == Shape{3});
  CHECK(graph.Get("learning_rate").dtype() == DType::kFloat32);
  CHECK(graph.TrainableVariables() == std::vector<Output>{w, b});
}

// One step of plain descent with rate 1 from w = (3, 4), u = 12 and gradients
// equal to the values: what is taken away is the gradient after the hooks.
struct Taken {
  double w0, w1, u;
};
Taken GradientsAfter(const std::vector<GradientHook>& hooks) {
  Graph graph;
  const Output w =
      graph.Variable("w", CopyOf(Tensor::Array<float>({2}, {3, 4})));
  const Output u =
      graph.Variable("norm/scale", CopyOf(Tensor::Scalar<float>(12)));
  Optimizer optimizer = optimizers::Sgd(1);
  for (const GradientHook& hook : hooks) optimizer = optimizer.With(hook);
  const Operation train =
      optimizer.Minimize(0.5 * (Sum(Square(w)) + Square(u)));
  Session session(graph);
  session.Initialize();
  session.Run({}, train);
  const Tensor after = session.Read(w);
  return {3 - after.At(0), 4 - after.At(1), 12 - session.Read(u).At(0)};
}

void CheckTaken(const Taken& taken, double w0, double w1, double u) {
  CHECK(taken.w0 == doctest::Approx(w0));
  CHECK(taken.w1 == doctest::Approx(w1));
  CHECK(taken.u == doctest::Approx(u));
}

TEST_CASE("clipping and weight decay") {
  CheckTaken(GradientsAfter({}), 3, 4, 12);
  // The norm of all is 13, of w alone 5.
  CheckTaken(GradientsAfter({gradients::ClipByGlobalNorm(6.5)}), 1.5, 2, 6);
  CheckTaken(GradientsAfter({gradients::ClipByGlobalNorm(100)}), 3, 4, 12);
  CheckTaken(GradientsAfter({gradients::ClipByNorm(2.5)}), 1.5, 2, 2.5);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CheckTaken(GradientsAfter({gradients::ClipByGlobalNorm(kInfinity)}), 3, 4,
             12);
  CheckTaken(GradientsAfter({gradients::ClipByNorm(kInfinity)}), 3, 4, 12);
  CheckTaken(GradientsAfter({gradients::ClipByValue(3.5)}), 3, 3.5, 3.5);
  CheckTaken(GradientsAfter({gradients::WeightDecay(0.1)}), 3.3, 4.4, 12);
  CheckTaken(GradientsAfter({gradients::WeightDecay(0.1, nullptr)}), 3.3, 4.4,
             13.2);
  // In order.
  CheckTaken(GradientsAfter({gradients::ClipByValue(1),
                             gradients::WeightDecay(0.5, nullptr)}),
             2.5, 3, 7);
  // Decay comes last, whatever the order: the norm is that of the gradients.
  for (const bool first : {false, true}) {
    const GradientHook clip = gradients::ClipByGlobalNorm(6.5);
    const GradientHook decay = gradients::WeightDecay(0.5, nullptr);
    CheckTaken(
        first ? GradientsAfter({decay, clip}) : GradientsAfter({clip, decay}),
        1.5 + 1.5, 2 + 2, 6 + 6);
  }
  // One of one's own.
  CheckTaken(GradientsAfter({[](MinimizeContext& context,
                                std::vector<GradientAndVariable>& pairs) {
               CHECK(context.update_number.valid());
               pairs[0].gradient = ZerosLike(pairs[0].gradient);
             }}),
             0, 0, 12);
}

// The first step of AdamW, by rate 0.5, from 3 and with gradient 3: the mean
// over the root of the mean square is 1.
TEST_CASE("weight decay is that of an optimizer that has its own") {
  const auto after_step = [](const Optimizer& optimizer, const char* name) {
    Graph graph;
    const Output w = graph.Variable(name, Filled(3, {1}));
    const Operation train = optimizer.Minimize(0.5 * Sum(Square(w)));
    Session session(graph);
    session.Initialize();
    session.Run({}, train);
    return session.Read(w).At(0);
  };
  const Optimizer adamw = optimizers::AdamW(0.5, {.weight_decay = 0.125});
  CHECK(after_step(adamw, "w") == doctest::Approx(3 - 0.5 * 0.125 * 3 - 0.5));
  const Optimizer given = adamw.With(gradients::WeightDecay(0.25));
  CHECK(after_step(given, "w") == doctest::Approx(3 - 0.5 * 0.25 * 3 - 0.5));
  // None is one, too.
  CHECK(after_step(adamw.With(gradients::WeightDecay(0)), "w") ==
        doctest::Approx(3 - 0.5));
  // Those that are excluded are the hook's.
  CHECK(after_step(given, "bias") == doctest::Approx(3 - 0.5));
  const Optimizer all = adamw.With(gradients::WeightDecay(0.25, nullptr));
  CHECK(after_step(all, "bias") == doctest::Approx(3 - 0.5 * 0.25 * 3 - 0.5));
  // As one that a program chose goes to an optimizer that a user chose.
  const Optimizer program =
      optimizers::Nesterov(1).With(gradients::WeightDecay(0.25));
  CHECK(after_step(adamw.WithExtrasOf(program), "w") ==
        doctest::Approx(3 - 0.5 * 0.25 * 3 - 0.5));
}

TEST_CASE("an optimizer that a user chose recomputes as the program's does") {
  const auto recomputed = [](const Optimizer& optimizer) {
    Graph graph;
    Output y = graph.Placeholder("x", DType::kFloat32, {8, 4});
    for (int i = 0; i < 12; ++i) {
      const Output w = graph.Variable("w" + std::to_string(i), Ones({4, 4}));
      y = Tanh(MatMul(y, w));
    }
    optimizer.Minimize(Mean(y));
    const auto& nodes = graph.nodes();
    return std::count_if(nodes.begin(), nodes.end(), [](const auto& node) {
      return node->name().find("recompute/") != std::string::npos;
    });
  };
  const Optimizer program = optimizers::Sgd(1), named = optimizers::Adam();
  CHECK(recomputed(named.WithExtrasOf(program)) == 0);
  CHECK(recomputed(program.WithRecompute()) > 0);
  CHECK(recomputed(named.WithExtrasOf(program.WithRecompute())) ==
        recomputed(program.WithRecompute()));
}

TEST_CASE("clipping by norms whose squares no float32 holds") {
  struct Sizes {
    double gradient, norm;
  };
  for (const auto& [size, norm] : {Sizes{1e20, 1}, {1e-25, 1e-25}}) {
    for (const GradientHook& clip :
         {gradients::ClipByGlobalNorm(norm), gradients::ClipByNorm(norm)}) {
      Graph graph;
      const Output w = graph.Variable("w", Zeros({2}));
      const Output g = graph.Constant(
          Tensor::Array<double>({2}, {3 * size, 4 * size}).Cast(w.dtype()));
      const Operation train =
          optimizers::Sgd(1).With(clip).Minimize(Sum(w * g));
      Session session(graph);
      session.Initialize();
      session.Run({}, train);
      const Tensor taken = session.Read(w);
      CHECK(taken.At(0) / norm == doctest::Approx(-0.6));
      CHECK(taken.At(1) / norm == doctest::Approx(-0.8));
    }
  }
}

TEST_CASE("a norm of zero is no division by zero") {
  Graph graph;
  const Output w = graph.Variable("w", Zeros({2}));
  const Operation train = optimizers::Sgd(1)
                              .With(gradients::ClipByGlobalNorm(1))
                              .Minimize(Sum(Square(w)));
  Session session(graph);
  session.Initialize();
  session.Run({}, train);
  CHECK(session.Read(w).At(0) == 0);
  // Nor on the way, where it would be taken for what spoilt a training.
  int norms = 0;
  for (const auto& node : graph.nodes()) {
    const bool norm = node->num_outputs() == 1 &&
                      node->output_type(0) == TensorType{DType::kFloat64, {}};
    if (!norm) continue;
    ++norms;
    CHECK(std::isfinite(session.Run({}, node->output(0)).At(0)));
  }
  CHECK(norms > 0);
}

// Gradients of `count` runs, each given as a feed.
Tensor AfterRuns(const Optimizer& optimizer, const std::vector<float>& feeds) {
  Graph graph;
  const Output w = graph.Variable("w", Ones({1}));
  const Output g = graph.Placeholder("g", DType::kFloat32, {1});
  const Operation train = optimizer.Minimize(Sum(w * g));
  Session session(graph);
  session.Initialize();
  for (float feed : feeds) {
    session.Run({{g, Tensor::Array<float>({1}, {feed})}}, train);
  }
  CHECK(session.Read(GlobalStep(graph)).IntAt(0) ==
        static_cast<int64_t>(feeds.size()));
  return session.Read(w);
}

TEST_CASE("accumulating over n runs is one step with their mean") {
  for (const Optimizer& optimizer :
       {optimizers::Sgd(0.1), optimizers::Momentum(0.1, 0.9),
        optimizers::Adam(0.1), optimizers::AdamW(0.1)}) {
    CAPTURE(optimizer.name());
    const Optimizer slow = optimizer.With(gradients::Accumulate(3));
    // Nothing happens before the third run.
    CHECK(AfterRuns(slow, {1, 5}).At(0) == 1);
    CHECK(AfterRuns(slow, {1, 5, -3}).At(0) ==
          doctest::Approx(AfterRuns(optimizer, {1}).At(0)));
    CHECK(AfterRuns(slow, {1, 5, -3, 2, 2, 2, 9}).At(0) ==
          doctest::Approx(AfterRuns(optimizer, {1, 2}).At(0)));
  }
}

TEST_CASE("averages follow the variables, early values weighing little") {
  // The loss sum(w) and rate 1: w falls by 1 a step, to -1, -2, ...
  for (const int64_t accumulate : {1, 2}) {
    CAPTURE(accumulate);
    Graph graph;
    const Output w = graph.Variable("w", Zeros({2}));
    const Operation train = optimizers::Sgd(1.0)
                                .With(gradients::Accumulate(accumulate))
                                .WithAverages(0.3)
                                .Minimize(Sum(w));
    Session session(graph);
    session.Initialize();
    double average = 0;
    for (int n = 1; n <= 8; ++n) {
      for (int64_t i = 0; i < accumulate; ++i) session.Run({}, train);
      CHECK(session.Read(w).At(1) == -n);
      const double d = std::min(0.3, (n - 1.0) / (n + 9.0));
      average = d * average + (1 - d) * -n;
      CHECK(session.Read(graph.Get("w/average")).At(1) ==
            doctest::Approx(average).epsilon(1e-6));
    }
    CHECK(average > -8);
    CHECK(graph.TrainableVariables().size() == 1);
  }
  CHECK(Contains(ErrorOf([] { (void)optimizers::Sgd(1.0).WithAverages(1); }),
                 "wanted a decay in [0, 1), got 1"));
}

TEST_CASE("before the first update averages are the variables") {
  Graph graph;
  const Output w = graph.Variable("w", Filled(5, {}));
  const Operation train = optimizers::Sgd(1.0)
                              .With(gradients::Accumulate(3))
                              .WithAverages(0.25)
                              .Minimize(w);
  Session session(graph);
  session.Initialize();
  // Updates 1 and 2 leave 4 and 3; of the second the average has 1 - 1 / 11.
  const double second = 4 / 11.0 + 3 * 10 / 11.0;
  for (const double wanted : {5.0, 5.0, 4.0, 4.0, 4.0, second, second}) {
    session.Run({}, train);
    CHECK(session.Read(graph.Get("w/average")).At(0) ==
          doctest::Approx(wanted).epsilon(1e-6));
  }
}

TEST_CASE("minimize trains a chosen subset") {
  Graph graph;
  const Output a = graph.Variable("a", Ones({}));
  const Output b = graph.Variable("b", Ones({}));
  const Operation train = optimizers::Sgd(0.1).Minimize(Square(a * b), {b});
  Session session(graph);
  session.Initialize();
  session.Run({}, train);
  CHECK(session.Read(a).At(0) == 1);
  CHECK(session.Read(b).At(0) == doctest::Approx(0.8));
}

TEST_CASE("what cannot be trained is said") {
  Graph graph;
  const Output a = graph.Variable("a", Ones({2}));
  const Output b = graph.Variable("b", Ones({}));
  CHECK(Contains(ErrorOf([&] { optimizers::Sgd(1).Minimize(a); }),
                 "must be a floating-point scalar, got float32[2]"));
  CHECK(Contains(ErrorOf([&] { optimizers::Sgd(1).Minimize(a); }),
                 "optimizers_test.cc:"));
  CHECK(Contains(ErrorOf([&] { optimizers::Sgd(1).Minimize(Sum(a), {b}); }),
                 "does not depend on 'b'"));
  const Output constant = graph.Constant(1.0, DType::kFloat32);
  CHECK(Contains(ErrorOf([&] { optimizers::Sgd(1).Minimize(constant); }),
                 "depends on no trainable variable"));
  CHECK(
      Contains(ErrorOf([&] { optimizers::ByName("sgdd"); }), "sgd, momentum"));
  CHECK(Contains(ErrorOf([&] { gradients::ClipByValue(0); }), "positive"));
}

TEST_CASE("every optimizer of the command line brings the loss down") {
  for (const char* name : {"sgd", "momentum", "nesterov", "rmsprop", "adagrad",
                           "adam", "adamw", "lars", "lamb"}) {
    CAPTURE(name);
    Graph graph;
    const Output w =
        graph.Variable("w", CopyOf(Tensor::Array<float>({2}, {0.5, -0.25})));
    const Output loss = Sum(Square(w));
    const Operation train = optimizers::ByName(name).Minimize(loss);
    Session session(graph);
    session.Initialize();
    for (int i = 0; i < 50; ++i) session.Run({}, train);
    CHECK(session.Run({}, loss).At(0) < 0.3);
  }
}

}  // namespace
}  // namespace sluice
