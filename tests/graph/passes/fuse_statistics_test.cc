// passes::FuseStatistics: random networks in float16 train as without it, on a
// CPU that is described as what a GPU is.
#include <doctest/doctest.h>

#include <cmath>
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

// Convolutions with and without strides and groups, normalised once or twice,
// with an addition or not; what they make is read by others, too.
class RandomNet {
 public:
  explicit RandomNet(unsigned seed) : random_(seed) {
    image = graph.Placeholder("image", DType::kFloat32,
                              {Draw(1, 3), Draw(3, 8), Draw(3, 8), 8});
    Output x = image;
    const int64_t layers = Draw(1, 3);
    for (int64_t i = 0; i < layers; ++i) x = Layer(x, i);
    loss = Mean(Square(x));
    train = optimizers::Momentum(0.05, 0.9).WithLossScaling().Minimize(loss);
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
  int64_t normalized = 0;  // convolutions

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

  Output Norm(const Output& y, const std::string& name, bool relu) {
    Scope scope(graph, name);
    const Output z = layers::BatchNorm(scope, y, {.training = true});
    return relu ? Relu(z) : z;
  }

  Output Layer(const Output& x, int64_t i) {
    const std::string name = std::to_string(i);
    const int64_t groups = Draw(0, 3) == 0 ? 2 : 1, out = 8 * Draw(1, 2);
    const Output filter = graph.Variable(
        "filter" + name,
        CopyOf(Filter({Draw(1, 3), Draw(1, 3), x.shape()[3] / groups, out})));
    Conv2DOptions options;
    options.groups = groups;
    options.strides = {Draw(1, 2), Draw(1, 2)};
    if (Draw(0, 3) == 0) options.padding = Padding::kValid;
    if (options.padding == Padding::kValid) options.strides = {1, 1};
    for (int k : {0, 1}) {  // an image smaller than the window
      if (x.shape()[1 + k] < filter.shape()[k]) {
        options.padding = Padding::kSame;
      }
    }
    const Output y = Conv2D(x, filter, options);
    ++normalized;
    const int64_t kind = Draw(0, 4);
    const Output z = Norm(y, "norm" + name, kind != 0);
    if (kind == 1) return z + y;                              // read again
    if (kind == 2) return z + Norm(y, "more" + name, false);  // two of one
    if (kind == 3) return Relu(Norm(y, "more" + name, false) + Square(z));
    return z;
  }

  std::mt19937 random_;
};

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> variables;
  std::map<std::string, int> nodes;
};

Trained Train(const RandomNet& net, bool fuse_statistics, bool fuse) {
  const auto device = Device::Open({DeviceType::kCpu, 0}).ValueOrThrow();
  DeviceDescription description = DescribeDevice(*device);
  description.filters_ohwi = description.half_sums = true;
  passes::Context context;
  context.devices = {description};
  context.fuse = fuse;
  context.fuse_statistics = fuse_statistics;
  CutStep(net.graph, {{}, {}, net.initializers}, *device, context,
          Precision::kFloat16)
      .Run({}, {});
  CutStep step(net.graph,
               {{{net.image, net.image.shape()}}, {net.loss}, {net.train}},
               *device, context, Precision::kFloat16);
  const Tensor image = net.Image();
  Trained trained;
  for (int i = 0; i < 3; ++i) {
    Tensor loss(DType::kFloat32, {});
    step.Run({const_cast<void*>(image.raw())}, {loss.raw()});
    trained.losses.push_back(loss.At(0));
  }
  for (const Output& variable : net.graph.Variables()) {
    const Variable* found = device->variables().Find(variable.node().origin());
    REQUIRE(found != nullptr);
    trained.variables[variable.name()] = found->value;
  }
  trained.nodes = step.nodes;
  return trained;
}

int Count(const Trained& trained, const std::string& ending) {
  int count = 0;
  for (const auto& [op, n] : trained.nodes) count += op.ends_with(ending) * n;
  return count;
}

// The largest difference beside the largest value.
double Distance(const Tensor& a, const Tensor& b) {
  double distance = 0, largest = 1e-2;
  for (int64_t i = 0; i < a.elements(); ++i) {
    distance = std::max(distance, std::abs(a.At(i) - b.At(i)));
    largest = std::max(largest, std::abs(b.At(i)));
  }
  return distance / largest;
}

TEST_CASE("random networks train alike with statistics of convolutions") {
  int64_t normalized = 0, summed = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const RandomNet net(seed);
    const bool fuse = seed % 4 != 0;
    const Trained plain = Train(net, /*fuse_statistics=*/false, fuse);
    const Trained fused = Train(net, /*fuse_statistics=*/true, fuse);
    for (size_t i = 0; i < plain.losses.size(); ++i) {
      CHECK(std::isfinite(plain.losses[i]));
      CHECK(fused.losses[i] == doctest::Approx(plain.losses[i]).epsilon(0.02));
    }
    for (const auto& [name, value] : plain.variables) {
      CAPTURE(name);
      CHECK(Distance(fused.variables.at(name), value) < 0.03);
    }
    const int sums = Count(fused, "WithSums"), by_sums = Count(fused, "BySums");
    CHECK(Count(plain, "Sums") == 0);
    CHECK(by_sums >= sums);
    CHECK(Count(fused, "WithSums") + Count(fused, "OhwiConv2D") ==
          Count(plain, "OhwiConv2D"));
    normalized += net.normalized;
    summed += sums;
  }
  MESSAGE(summed << " of " << normalized << " convolutions sum");
  // The others have groups, or strides that pad unevenly.
  CHECK(summed > normalized / 3);
  CHECK(summed < normalized);
}

// A channel whose mean is a thousand deviations: sums of squares say nothing of
// its variance.
TEST_CASE("a large mean is not normalised by sums") {
  Graph graph;
  const Output image =
      graph.Placeholder("image", DType::kFloat16, {4, 8, 8, 8});
  Tensor pick(DType::kFloat16, {1, 1, 8, 8});  // the image itself
  for (int64_t i = 0; i < 64; ++i) {
    pick.values<Half>()[i] = Half(i % 9 == 0 ? 1.0f : 0.0f);
  }
  const Output filter = graph.Variable("filter", CopyOf(pick));
  const Output ones = graph.Constant(Tensor::Full(DType::kFloat32, {8}, 1));
  const Output zeros = graph.Constant(Tensor::Full(DType::kFloat32, {8}, 0));
  const BatchNormOutputs norm =
      BatchNorm(Conv2D(image, filter), ones, zeros, zeros, ones, {});
  std::vector<Operation> initializers;
  for (Node* node : graph.Initializers()) initializers.emplace_back(node);

  Tensor values(DType::kFloat16, image.shape());
  for (int64_t i = 0; i < values.elements(); ++i) {
    // The first channel alternates between 1000 and 1001.
    const double at = i % 8 == 0 ? 1000.0 + (i / 8) % 2 : (i * 7 % 5) - 2.0;
    values.values<Half>()[i] = Half(static_cast<float>(at));
  }
  const auto device = Device::Open({DeviceType::kCpu, 0}).ValueOrThrow();
  DeviceDescription description = DescribeDevice(*device);
  description.filters_ohwi = description.half_sums = true;
  passes::Context context;
  context.devices = {description};
  context.fuse_statistics = true;
  CutStep(graph, {{}, {}, initializers}, *device, context, Precision::kFloat32)
      .Run({}, {});
  CutStep step(graph, {{{image, image.shape()}}, {norm.y}, {}}, *device,
               context, Precision::kFloat32);
  CHECK(step.nodes["BatchNormBySums"] == 1);
  Tensor y(DType::kFloat16, image.shape());
  step.Run({values.raw()}, {y.raw()});
  for (int64_t i = 0; i < y.elements(); i += 8) {
    CHECK(y.At(i) == doctest::Approx((i / 8) % 2 == 0 ? -1 : 1).epsilon(1e-2));
  }
}

}  // namespace
}  // namespace sluice
