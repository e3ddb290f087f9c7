// Mixed precision as a whole: steps in float16 and bfloat16 against the same in
// float32. What the pass does to a graph is in
// tests/graph/passes/cases/precision_*.txt, how loss scales move in
// loss_scale_test.cc, whole trainings are in precision_training_test.cc.
#include "engine/precision.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "engine/runtime/finite_check.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/passes/passes.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "models/zoo/mnist_networks.h"
#include "models/zoo/resnet.h"
#include "tests/support/described.h"

namespace sluice {
namespace {

TEST_CASE("precisions have names") {
  for (const char* name : {"fp32", "tf32", "fp16", "bf16"}) {
    CHECK(NameOf(*ParsePrecision(name)) == name);
  }
  CHECK(ParsePrecision("fp8").status().message() ==
        "wanted fp32, tf32, fp16 or bf16, got 'fp8'");
  CHECK(!HalfTypeOf(Precision::kTf32).has_value());
  CHECK(HalfTypeOf(Precision::kBFloat16) == DType::kBFloat16);
}

TEST_CASE("what depends on a write reads the new value in half, too") {
  Graph graph;
  const Output x = graph.Constant(Tensor::Full(DType::kFloat32, {1, 2}, 1));
  const auto variable = [&](const char* name) {
    return graph.Variable(name,
                          CopyOf(Tensor::Full(DType::kFloat32, {2, 2}, 1)));
  };
  const Output v = variable("v"), w = variable("w");
  const Operation doubled = AssignAdd(v, v * 1.0f);
  const Output before = MatMul(x, v);
  Output after;
  {
    const ControlScope scope(graph, {doubled});
    after = MatMul(x, v);
  }
  // By an operand, at some distance.
  const Output written = Relu(AssignAdd(w, w * 1.0f));
  const Output both = MatMul(MatMul(x, written), w);
  for (const Precision precision :
       {Precision::kFloat32, Precision::kFloat16, Precision::kBFloat16}) {
    CAPTURE(NameOf(precision));
    SessionOptions options;
    options.precision = precision;
    options.simplify = false;
    Session session(graph, options);
    session.Initialize();
    const auto values = session.Run({}, {before, after, both});
    CHECK(values[0].At(0) == 2);
    CHECK(values[1].At(0) == 4);
    CHECK(values[2].At(0) == 16);
  }
}

// A row of zeros stays one, where half would make the bound 0.
TEST_CASE("what is bounded away from 0 divides in half, too") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 4});
  const Output w =
      graph.Constant(Tensor::Full(DType::kFloat32, {4, 4}, 0.25), "w");
  const Output h = MatMul(x, w);
  const Output size = Mean(Abs(h), {1}, /*keep_dims=*/true);
  const Output column =
      graph.Constant(Tensor::Full(DType::kFloat32, {2, 1}, 1e-8), "column");
  std::vector<Output> fetches;
  for (const Output& divisor : {Clip(size, 1e-8, 1e4), Maximum(size, 1e-8),
                                Maximum(size, column), Sqrt(size + 1e-16)}) {
    fetches.push_back(MatMul(h / divisor, w));
  }
  const Tensor value = Tensor::Array<float>({2, 4}, {0, 0, 0, 0, 1, 1, 1, 1});
  for (const Precision precision :
       {Precision::kFloat32, Precision::kFloat16, Precision::kBFloat16}) {
    for (const bool fuse : {true, false}) {
      CAPTURE(NameOf(precision));
      CAPTURE(fuse);
      SessionOptions options;
      options.precision = precision;
      options.fuse = fuse;
      Session session(graph, options);
      for (const Tensor& y : session.Run({{x, value}}, fetches)) {
        CHECK(y.At(0) == 0);
        CHECK(y.At(7) == 1);
      }
    }
  }
}

// A classifier in training, and a batch.
struct Model {
  Graph graph;
  Output image, label, logits, loss;
  std::vector<Feed> feeds;

  using Network = std::function<Output(const Scope&, Operand image)>;
  Model(const Shape& shape, const Network& network) {
    Shape any = shape;
    any.set(0, kUnknown);
    image = graph.Placeholder("image", DType::kFloat32, any);
    label = graph.Placeholder("label", DType::kInt64, {kUnknown});
    logits = network(Scope(graph), image);
    loss = Mean(SparseSoftmaxCrossEntropy(logits, label));
    Tensor images(DType::kFloat32, shape);
    uint32_t state = 3;
    for (float& v : images.values<float>()) {
      state = state * 1664525u + 1013904223u;
      v = static_cast<float>(state >> 8) * 0x1p-24f;
    }
    Tensor labels(DType::kInt64, {shape[0]});
    for (int64_t i = 0; i < shape[0]; ++i) {
      labels.data<int64_t>()[i] = i * 7 % 10;
    }
    feeds = {{image, images}, {label, labels}};
  }
};

Model Cnn() {
  return Model({8, 28, 28, 1}, [](const Scope& scope, Operand image) {
    return MnistNetwork(scope, "cnn", image, /*training=*/false);
  });
}
// Two residual blocks, the second with a projection.
Model Blocks(Output (*activation)(Operand)) {
  return Model({8, 16, 16, 3}, [=](const Scope& scope, Operand image) {
    const auto layer = [&](const char* name, const Output& x, int64_t stride,
                           int64_t kernel) {
      const Output y = layers::Conv2D(scope / name / "conv", x,
                                      {.filters = 16,
                                       .kernel = kernel,
                                       .stride = stride,
                                       .use_bias = false});
      return layers::BatchNorm(scope / name / "norm", y, {.training = true});
    };
    Output x = activation(layer("stem", image.output(), 1, 3));
    x = activation(layer("b", activation(layer("a", x, 1, 3)), 1, 3) + x);
    x = activation(layer("d", activation(layer("c", x, 2, 3)), 1, 3) +
                   layer("projection", x, 2, 1));
    return layers::Dense(scope / "logits", layers::GlobalAvgPool(x),
                         {.units = 10});
  });
}
// 20 layers, with padded shortcuts.
Model Residual() {
  return Model({4, 32, 32, 3}, [](const Scope& scope, Operand image) {
    return ResNet(scope, "resnet20", image, {.classes = 10, .training = true});
  });
}

struct Results {
  double loss = 0;
  std::vector<std::string> names;
  std::vector<Tensor> gradients;   // of trainable variables
  std::vector<Tensor> statistics;  // others, after the step
};

// One training step without an update, from the same first values. Gradients
// are of the loss times 2^10, or else many would be below float16's range.
Results Differentiate(Model& model, Precision precision, bool fuse = true,
                      const GradientOptions& gradients = {}) {
  const std::vector<Output> variables = model.graph.TrainableVariables();
  std::vector<Output> fetches =
      Gradients({model.loss}, variables,
                {model.graph.Constant(1024.0, DType::kFloat32)}, gradients);
  fetches.push_back(model.loss);
  SessionOptions options;
  options.precision = precision;
  options.fuse = fuse;
  Session session(model.graph, options);
  session.Initialize();
  Results results;
  results.gradients = session.Run(model.feeds, fetches, model.graph.updates());
  results.loss = results.gradients.back().At(0);
  results.gradients.pop_back();
  for (const Output& v : variables) results.names.push_back(v.name());
  for (const Output& v : model.graph.Variables()) {
    if (!v.node().attrs().Bool("trainable")) {
      results.statistics.push_back(session.Read(v));
    }
  }
  return results;
}

double RelativeError(const std::vector<Tensor>& got,
                     const std::vector<Tensor>& wanted) {
  double error = 0, norm = 0;
  for (size_t k = 0; k < wanted.size(); ++k) {
    CHECK(got[k].dtype() == DType::kFloat32);
    for (int64_t i = 0; i < wanted[k].elements(); ++i) {
      error += std::pow(got[k].At(i) - wanted[k].At(i), 2);
      norm += std::pow(wanted[k].At(i), 2);
    }
  }
  return std::sqrt(error / norm);
}

// Bounds on the relative error of the loss, of all gradients taken together
// and of the moving statistics.
struct Bounds {
  double loss, gradients, statistics;
};

void CheckParity(Model& model, Precision precision, const Bounds& bounds) {
  const Results exact = Differentiate(model, Precision::kFloat32);
  for (bool fuse : {true, false}) {
    CAPTURE(NameOf(precision));
    CAPTURE(fuse);
    const Results half = Differentiate(model, precision, fuse);
    const double loss = std::abs(half.loss / exact.loss - 1);
    const double gradients = RelativeError(half.gradients, exact.gradients);
    MESSAGE("loss off by " << loss << ", gradients by " << gradients);
    CHECK(loss < bounds.loss);
    CHECK(loss > 0);  // it did something
    CHECK(gradients < bounds.gradients);
    if (exact.statistics.empty()) continue;
    CHECK(RelativeError(half.statistics, exact.statistics) < bounds.statistics);
  }
}

TEST_CASE("a convolutional network's loss and gradients agree") {
  Model model = Cnn();
  CheckParity(model, Precision::kFloat16, {1e-3, 5e-3, 0});
  CheckParity(model, Precision::kBFloat16, {1e-2, 6e-2, 0});
}

// Errors of a smooth network are in proportion to the rounding, 2^-11 and 2^-8.
// Those of ReLU are in proportion to its root: rounding an input of about 0
// switches a gradient on or off.
TEST_CASE("residual blocks' loss, gradients and statistics agree") {
  Model smooth = Blocks(Tanh);
  CheckParity(smooth, Precision::kFloat16, {1e-3, 5e-3, 1e-3});
  CheckParity(smooth, Precision::kBFloat16, {1e-2, 4e-2, 1e-2});
  Model model = Blocks(Relu);
  CheckParity(model, Precision::kFloat16, {1e-3, 7e-2, 1e-3});
  CheckParity(model, Precision::kBFloat16, {1e-2, 0.2, 1e-2});
}

TEST_CASE("20 layers' loss, gradients and statistics agree") {
  Model model = Residual();
  CheckParity(model, Precision::kFloat16, {1e-3, 0.15, 1e-3});
  CheckParity(model, Precision::kBFloat16, {1e-2, 0.4, 1e-2});
}

// Unfused: what is computed twice is fused otherwise, and a fused node rounds
// to half once where its parts round several times.
TEST_CASE("recomputed activations have the same bits") {
  for (Precision precision : {Precision::kFloat32, Precision::kFloat16}) {
    CAPTURE(NameOf(precision));
    Model model = Residual();
    const Results kept = Differentiate(model, precision, /*fuse=*/false);
    const Results again = Differentiate(model, precision, /*fuse=*/false,
                                        {.recompute = Recompute::kAll});
    CHECK(again.loss == kept.loss);
    CHECK(RelativeError(again.gradients, kept.gradients) == 0);
  }
}

TEST_CASE("two devices give the bits of one") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4, 8});
  const auto layer = [&](const char* device, const Output& from,
                         const char* name) {
    DeviceScope there(graph, device);
    const Output w =
        graph.Variable(name, {DType::kFloat32, {8, 8}, [](Graph& g) {
                                return RandomNormal(g, Shape{8, 8}, 0, 0.3);
                              }});
    return Tanh(MatMul(from, w) + from);
  };
  const Output y = Sum(layer("/cpu:0", layer("/cpu:1", x, "w"), "v"));
  const std::vector<Output> fetches = [&] {
    std::vector<Output> all = Gradients({y}, graph.Variables());
    all.push_back(y);
    return all;
  }();
  const auto run = [&](const std::vector<std::string>& devices) {
    SessionOptions options;
    options.devices = devices;
    options.precision = Precision::kBFloat16;
    options.fuse = false;
    Session session(graph, options);
    session.Initialize();
    return session.Run({{x, Tensor::Full(DType::kFloat32, {4, 8}, 0.3)}},
                       fetches);
  };
  const auto two = run({"/cpu:0", "/cpu:1"});
  // The same graph without places.
  for (const auto& node : graph.nodes()) node->set_device("/cpu:0");
  const auto one = run({"/cpu:0"});
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(two[i].dtype() == DType::kFloat32);
    CHECK(two[i].BitEqual(one[i]));
  }
}

TEST_CASE("tf32 is fp32 on a CPU") {
  Model model = Cnn();
  const Results fp32 = Differentiate(model, Precision::kFloat32);
  const Results tf32 = Differentiate(model, Precision::kTf32);
  CHECK(tf32.loss == fp32.loss);
  for (size_t i = 0; i < fp32.gradients.size(); ++i) {
    CHECK(tf32.gradients[i].BitEqual(fp32.gradients[i]));
  }
}

TEST_CASE("each tensor is cast once") {
  Model model = Residual();
  const auto variables = model.graph.TrainableVariables();
  StepRequest request;
  for (const Feed& feed : model.feeds) {
    request.feeds.push_back({feed.output, feed.value.shape()});
  }
  request.fetches = Gradients({model.loss}, variables);
  const auto step = ExtractStep(model.graph, request).ValueOrThrow();
  passes::Prune(*step);
  ThrowIfError(passes::Refine(*step, FoldNode));
  passes::Simplify(*step);  // sums to the same shape
  passes::Prune(*step);
  ThrowIfError(passes::Place(*step, testing::Described({"/cpu:0"})));
  ThrowIfError(passes::MixPrecision(*step, DType::kFloat16));
  ThrowIfError(passes::Verify(*step));
  std::set<std::pair<Output, DType>> cast;
  int64_t weights = 0, convolutions = 0;
  for (const auto& node : step->nodes()) {
    if (node->Is("Cast")) {
      CHECK(cast.insert({node->input(0), node->output_type(0).dtype}).second);
      weights += node->input(0).node().Is("Variable") ? 1 : 0;
    }
    if (!node->op().inputs.empty() &&
        std::string_view(node->op().name).starts_with("Conv2D")) {
      ++convolutions;
      CHECK(node->output_type(0).dtype == DType::kFloat16);
    }
    if (std::string_view(node->op().name).starts_with("BatchNorm")) {
      CAPTURE(node->name());
      CHECK(node->output_type(0).dtype == DType::kFloat16);
      CHECK(node->output_type(1).dtype == DType::kFloat32);
    }
  }
  // 19 convolutions and a dense layer; the first has no gradient of images.
  CHECK(convolutions == 19 * 3 - 1);
  CHECK(weights == 20);
}

TEST_CASE("gradients that overflow float16 skip the step and halve the scale") {
  Model model = Cnn();
  const Operation train = optimizers::Adam()
                              .WithLossScaling({.initial = 0x1p60})
                              .Minimize(model.loss);
  SessionOptions options;
  options.precision = Precision::kFloat16;
  Session session(model.graph, options);
  session.Initialize();
  const auto values = [&] {
    std::map<std::string, Tensor> all;
    for (const Output& v : model.graph.Variables()) {
      if (IsLossScaleState(v.name()) || v.name() == "global_step") continue;
      all[v.name()] = session.Read(v);
    }
    return all;
  };
  const auto scale = [&] {
    return session.Read(model.graph.Get("loss_scale/scale")).At(0);
  };
  const auto before = values();
  int skipped = 0;
  for (; skipped < 60; ++skipped) {
    const double was = scale();
    CHECK(std::isfinite(session.Run(model.feeds, model.loss, {train}).At(0)));
    if (scale() == was) break;
    CHECK(scale() == was / 2);
    for (const auto& [name, value] : values()) {
      CAPTURE(name);
      CHECK(value.BitEqual(before.at(name)));
    }
  }
  // Gradients of about 0.01 fit from about 2^22 on.
  CHECK(skipped > 30);
  CHECK(skipped < 50);
  CHECK(!values().at("logits/bias").BitEqual(before.at("logits/bias")));
  for (const auto& [name, value] : values()) {
    CAPTURE(name);
    CHECK(AllFinite(value));
  }
}

}  // namespace
}  // namespace sluice
