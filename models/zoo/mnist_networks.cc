#include "models/zoo/mnist_networks.h"

#include <fmt/format.h>

#include <cmath>

#include "graph/builder.h"
#include "models/nn/layers.h"

namespace sluice {
namespace {

Output Mlp(const Scope& scope, Output x) {
  const auto hidden = [&](const char* name, Output in, int64_t units) {
    const double stddev = 1 / std::sqrt(static_cast<double>(in.shape()[-1]));
    return layers::Dense(scope / name, in,
                         {.units = units,
                          .activation = Relu,
                          .weights = initializers::TruncatedNormal(stddev)});
  };
  x = hidden("fc1", layers::Flatten(x), 128);
  x = hidden("fc2", x, 32);
  return layers::Dense(
      scope / "logits", x,
      {.units = 10,
       .weights = initializers::TruncatedNormal(1 / std::sqrt(32.0))});
}

// Uniform weights: drawing three million truncated normals would take longer
// than all else before the first step.
Output Cnn(const Scope& scope, Output x, bool training) {
  const auto conv = [&](const char* name, Output in, int64_t filters) {
    x = layers::Conv2D(scope / name, in,
                       {.filters = filters,
                        .kernel = 5,
                        .activation = Relu,
                        .weights = initializers::HeUniform()});
    return layers::MaxPool(x, {.size = 2});
  };
  x = conv("conv1", x, 32);
  x = conv("conv2", x, 64);
  x = layers::Dense(scope / "fc1", layers::Flatten(x),
                    {.units = 1024,
                     .activation = Relu,
                     .weights = initializers::HeUniform()});
  x = layers::Dropout(scope / "dropout", x,
                      {.rate = 0.5, .training = training});
  return layers::Dense(scope / "logits", x, {.units = 10});
}

}  // namespace

Output MnistNetwork(const Scope& scope, const std::string& model, Operand image,
                    bool training) {
  LocationScope location(image.graph(), image.location());
  if (model == "mlp") return Mlp(scope, image.tensor());
  if (model == "cnn") return Cnn(scope, image.tensor(), training);
  if (model == "softmax") {
    return layers::Dense(scope / "logits", layers::Flatten(image),
                         {.units = 10, .weights = initializers::Constant(0)});
  }
  throw Error(
      Code::kNotFound,
      fmt::format("unknown model '{}'; known are softmax, mlp and cnn", model));
}

}  // namespace sluice
