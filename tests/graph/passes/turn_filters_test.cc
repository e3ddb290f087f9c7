// passes::TurnFilters: random convolutional networks train to the same bits
// with and without it, on a CPU that is described as one that likes OHWI.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "graph/builder.h"
#include "graph/compile/describe_device.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/support/cut_step.h"

namespace sluice {
namespace {

using testing::CutStep;

// Convolutions of all kinds: windows, strides, groups; with a bias, or
// normalised; a filter that serves twice.
class RandomNet {
 public:
  explicit RandomNet(unsigned seed) : random_(seed) {
    const Shape shape = {2, Draw(5, 9), Draw(5, 9), Draw(1, 2) == 1 ? 3 : 4};
    image = graph.Placeholder("image", DType::kFloat32, shape);
    Output x = image;
    const int64_t layers = Draw(1, 4);
    for (int64_t i = 0; i < layers; ++i) x = Layer(x, i);
    loss = Mean(Square(x));
    const int64_t kind = Draw(0, 2);
    Optimizer optimizer = kind == 0   ? optimizers::Sgd(0.05)
                          : kind == 1 ? optimizers::Momentum(0.05, 0.9)
                                      : optimizers::Adam(0.01);
    if (Draw(0, 1) == 1) {
      optimizer = optimizer.With(gradients::WeightDecay(1e-2));
    }
    if (Draw(0, 1) == 1) optimizer = optimizer.WithLossScaling();
    train = optimizer.Minimize(loss);
    for (Node* node : graph.Initializers()) initializers.emplace_back(node);
  }

  Tensor Image() const {
    std::mt19937 random(3);  // NOLINT: the same in every run
    Tensor t(DType::kFloat32, image.shape());
    for (float& v : t.values<float>()) {
      v = std::uniform_real_distribution<float>(-1, 1)(random);
    }
    return t;
  }

  Graph graph;
  Output image, loss;
  Operation train;
  std::vector<Operation> initializers;

 private:
  int64_t Draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  Tensor Filter(const Shape& shape) {
    Tensor t(DType::kFloat32, shape);
    for (float& v : t.values<float>()) {
      v = std::uniform_real_distribution<float>(-0.5, 0.5)(random_);
    }
    return t;
  }

  Output Layer(const Output& x, int64_t i) {
    const int64_t channels = x.shape()[3];
    const int64_t groups = channels % 2 == 0 && Draw(0, 2) == 0 ? 2 : 1;
    const bool square = groups == 1 && Draw(0, 2) == 0;
    const int64_t out = square ? channels : 2 * Draw(1, 5);
    const Shape shape = {Draw(1, 3), Draw(1, 3), channels / groups, out};
    const Output filter =
        graph.Variable("filter" + std::to_string(i), CopyOf(Filter(shape)));
    Conv2DOptions options;
    options.groups = groups;
    if (!square) options.strides = {Draw(1, 2), Draw(1, 2)};
    Output y = Conv2D(x, filter, options);
    if (square) y = Conv2D(Relu(y), filter, options);
    const int64_t after = Draw(0, 2);
    if (after == 1) {
      return Relu(
          BiasAdd(y, graph.Variable("bias" + std::to_string(i), Zeros({out}))));
    }
    if (after == 0) return y;
    Scope scope(graph, "norm" + std::to_string(i));
    return layers::BatchNorm(scope, y, {.training = true, .activation = Relu});
  }

  std::mt19937 random_;
};

struct Trained {
  std::vector<Tensor> losses;
  std::map<std::string, Tensor> variables;
  std::map<std::string, int> nodes;
  int turns = 0;  // launches that turn filters, on a GPU
};

Trained Train(const RandomNet& net, bool ohwi, Precision precision, bool fuse) {
  const auto device = Device::Open({DeviceType::kCpu, 0}).ValueOrThrow();
  DeviceDescription description = DescribeDevice(*device);
  description.filters_ohwi = ohwi;
  passes::Context context;
  context.devices = {description};
  context.fuse = fuse;
  CutStep(net.graph, {{}, {}, net.initializers}, *device, context, precision)
      .Run({}, {});
  CutStep step(net.graph,
               {{{net.image, net.image.shape()}}, {net.loss}, {net.train}},
               *device, context, precision);
  const Tensor image = net.Image();
  Trained trained;
  for (int i = 0; i < 3; ++i) {
    Tensor loss(DType::kFloat32, {});
    step.Run({const_cast<void*>(image.raw())}, {loss.raw()});
    trained.losses.push_back(loss);
  }
  for (const Output& variable : net.graph.Variables()) {
    const Variable* found = device->variables().Find(variable.node().origin());
    REQUIRE(found != nullptr);
    trained.variables[variable.name()] = found->value;
  }
  trained.nodes = step.nodes;
  trained.turns =
      step.Launches("TransposeKernel") + step.Launches("TurnFiltersKernel");
  return trained;
}

TEST_CASE("random networks train to the same bits with filters turned once") {
  int convolutions = 0, turned = 0, turns = 0, turns_before = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const RandomNet net(seed);
    const Precision precision = seed % 3 == 0   ? Precision::kFloat32
                                : seed % 3 == 1 ? Precision::kFloat16
                                                : Precision::kBFloat16;
    const bool fuse = seed % 5 != 0;
    Trained plain = Train(net, /*ohwi=*/false, precision, fuse);
    Trained ohwi = Train(net, /*ohwi=*/true, precision, fuse);
    for (size_t i = 0; i < plain.losses.size(); ++i) {
      CHECK(ohwi.losses[i].BitEqual(plain.losses[i]));
      CHECK(std::isfinite(plain.losses[i].At(0)));
    }
    CHECK(plain.losses[2].At(0) != plain.losses[0].At(0));
    for (const auto& [name, value] : plain.variables) {
      CAPTURE(name);
      CHECK(ohwi.variables.at(name).BitEqual(value));
    }
    CHECK(plain.nodes["TurnFilters"] == 0);
    for (const char* op :
         {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}) {
      convolutions += plain.nodes[op];
      const std::string named = std::string("Ohwi") + op;
      turned += ohwi.nodes[named];
      CHECK(ohwi.nodes[op] + ohwi.nodes[named] == plain.nodes[op]);
    }
    CHECK(ohwi.nodes["CastList"] <= plain.nodes["CastList"]);
    turns_before += plain.turns;
    turns += ohwi.turns;
  }
  MESSAGE(turned << " of " << convolutions << " convolutions; " << turns
                 << " turns instead of " << turns_before);
  // The others have a bias, or a gradient that is added to another.
  CHECK(turned > convolutions * 3 / 4);
  CHECK(turns < turns_before / 2);
}

}  // namespace
}  // namespace sluice
