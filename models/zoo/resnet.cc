#include "models/zoo/resnet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/slice.h"
#include "models/nn/layers.h"

namespace sluice {
namespace {

enum class Block : uint8_t { kBasic, kBottleneck };

struct Architecture {
  const char* name;
  Block block;
  std::vector<int64_t> depths;  // blocks of each stage
  bool v1 = false;              // a bottleneck strides in its first 1x1
  bool cifar = false;
};

const std::vector<Architecture>& Architectures() {
  static const std::vector<Architecture> kAll = {
      {"resnet18", Block::kBasic, {2, 2, 2, 2}},
      {"resnet34", Block::kBasic, {3, 4, 6, 3}},
      {"resnet50", Block::kBottleneck, {3, 4, 6, 3}},
      {"resnet101", Block::kBottleneck, {3, 4, 23, 3}},
      {"resnet152", Block::kBottleneck, {3, 8, 36, 3}},
      {"resnet50_v1", Block::kBottleneck, {3, 4, 6, 3}, true},
      {"resnet101_v1", Block::kBottleneck, {3, 4, 23, 3}, true},
      {"resnet152_v1", Block::kBottleneck, {3, 8, 36, 3}, true},
      {"resnet20", Block::kBasic, {3, 3, 3}, false, true},
      {"resnet56", Block::kBasic, {9, 9, 9}, false, true},
  };
  return kAll;
}

const Architecture* Find(const std::string& model) {
  const auto& all = Architectures();
  const auto it = std::find_if(
      all.begin(), all.end(),
      [&](const Architecture& known) { return known.name == model; });
  return it == all.end() ? nullptr : &*it;
}

// Builds one network, layer after layer.
class Builder {
 public:
  Builder(const Architecture& architecture, const ResNetOptions& options)
      : architecture_(architecture), options_(options) {}

  layers::Classifier Build(const Scope& scope, Output x) const {
    x = Stem(scope, x);
    int64_t channels = architecture_.cifar ? 16 : 64;
    for (size_t stage = 0; stage < architecture_.depths.size(); ++stage) {
      const Scope layer = scope / fmt::format("layer{}", stage + 1);
      for (int64_t i = 0; i < architecture_.depths[stage]; ++i) {
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        x = ResidualBlock(layer / fmt::format("{}", i), x, channels, stride);
      }
      channels *= 2;
    }
    x = layers::GlobalAvgPool(x);
    const double bound = 1 / std::sqrt(static_cast<double>(x.shape()[-1]));
    return {scope / "fc",
            x,
            {.classes = options_.classes,
             .weights = initializers::Uniform(-bound, bound),
             .bias = initializers::Uniform(-bound, bound),
             .workers = options_.workers,
             .share = options_.share}};
  }

 private:
  // Padded evenly, so that the output is ceil(size / stride) wide: with a
  // stride, SAME would put one pixel less before the image.
  Output Conv(const Scope& scope, const Output& x, int64_t filters,
              int64_t kernel, int64_t stride) const {
    const int64_t pad = kernel / 2;
    const double fan_out = static_cast<double>(kernel * kernel * filters);
    return layers::Conv2D(
        scope, x,
        {.filters = filters,
         .kernel = kernel,
         .stride = stride,
         .padding = pad == 0 ? Padding::kValid : Padding::kExplicit,
         .explicit_padding = {pad, pad, pad, pad},
         .use_bias = false,
         .weights = initializers::Normal(std::sqrt(2 / fan_out))});
  }

  Output Norm(const Scope& scope, const Output& x,
              const layers::Activation& activation = nullptr) const {
    return layers::BatchNorm(scope, x,
                             {.training = options_.training,
                              .activation = activation,
                              .synchronized = options_.synchronized});
  }

  Output Stem(const Scope& scope, const Output& x) const {
    if (architecture_.cifar) {
      return Norm(scope / "bn1", Conv(scope / "conv1", x, 16, 3, 1), Relu);
    }
    const Output y =
        Norm(scope / "bn1", Conv(scope / "conv1", x, 64, 7, 2), Relu);
    return layers::MaxPool(y, {.size = 3,
                               .stride = 2,
                               .padding = Padding::kExplicit,
                               .explicit_padding = {1, 1, 1, 1}});
  }

  Output ResidualBlock(const Scope& scope, const Output& x, int64_t channels,
                       int64_t stride) const {
    const bool bottleneck = architecture_.block == Block::kBottleneck;
    const int64_t filters = bottleneck ? 4 * channels : channels;
    const bool first = architecture_.v1;  // the convolution that strides
    Output y;
    if (bottleneck) {
      y = Conv(scope / "conv1", x, channels, 1, first ? stride : 1);
      y = Norm(scope / "bn1", y, Relu);
      y = Conv(scope / "conv2", y, channels, 3, first ? 1 : stride);
      y = Norm(scope / "bn2", y, Relu);
      y = Norm(scope / "bn3", Conv(scope / "conv3", y, filters, 1, 1));
    } else {
      y = Conv(scope / "conv1", x, channels, 3, stride);
      y = Norm(scope / "bn1", y, Relu);
      y = Norm(scope / "bn2", Conv(scope / "conv2", y, filters, 3, 1));
    }
    return Relu(y + Shortcut(scope / "downsample", x, filters, stride));
  }

  Output Shortcut(const Scope& scope, const Output& x, int64_t filters,
                  int64_t stride) const {
    const int64_t channels = x.shape()[-1];
    if (stride == 1 && channels == filters) return x;
    if (!architecture_.cifar) {
      return Norm(scope / "1", Conv(scope / "0", x, filters, 1, stride));
    }
    NameScope names(scope);
    // The bounds of all three leading dimensions are left out.
    const Output every = StridedSlice(x, {.begin = {0, 0, 0},
                                          .end = {0, 0, 0},
                                          .strides = {1, stride, stride},
                                          .begin_mask = 7,
                                          .end_mask = 7});
    const int64_t before = (filters - channels) / 2;
    return Pad(every, {0, 0, 0, 0, 0, 0, before, filters - channels - before});
  }

  const Architecture& architecture_;
  const ResNetOptions& options_;
};

}  // namespace

layers::Classifier ResNetClassifier(const Scope& scope,
                                    const std::string& model, Operand image,
                                    const ResNetOptions& options) {
  const Architecture* architecture = Find(model);
  if (architecture == nullptr) {
    throw Error(Code::kNotFound,
                fmt::format("unknown model '{}'; known are {}", model,
                            fmt::join(ResNetNames(), ", ")));
  }
  LocationScope location(image.graph(), image.location());
  return Builder(*architecture, options).Build(scope, image.tensor());
}

Output ResNet(const Scope& scope, const std::string& model, Operand image,
              const ResNetOptions& options) {
  return ResNetClassifier(scope, model, image, options).Logits();
}

const std::vector<std::string>& ResNetNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Architecture& known : Architectures()) {
      names.emplace_back(known.name);
    }
    return names;
  }();
  return kNames;
}

bool IsCifarResNet(const std::string& model) {
  const Architecture* architecture = Find(model);
  return architecture != nullptr && architecture->cifar;
}

}  // namespace sluice
