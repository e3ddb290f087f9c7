// Networks that flatten images, with PyTorch's weights: what they compute
// beside loops over images [c,h,w], as PyTorch has them.
#include "models/train/values/flattened_images.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "models/train/values/weights_file.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::TemporaryFolder;
using Vector = std::vector<double>;

constexpr int64_t kHeight = 2, kWidth = 3, kChannels = 4;
constexpr int64_t kFeatures = kHeight * kWidth * kChannels;
const Shape kImages = {-1, kHeight, kWidth, kChannels};

// A network, and weights for it by PyTorch's names and dimensions.
struct Network {
  Graph graph;
  Scope scope{graph};
  Output image = graph.Placeholder("image", DType::kFloat32,
                                   {1, kHeight, kWidth, kChannels});
  std::vector<Output> variables;          // of the layers
  std::map<std::string, Tensor> weights;  // of these

  Output Dense(const std::string& name, const Output& x, int64_t units) {
    return layers::Dense(scope / name, x, {.units = units});
  }
  // Random values for the variables, and for an image [h,w,c].
  Tensor Draw(uint32_t seed) {
    std::mt19937 engine(seed);
    const auto drawn = [&](const Shape& shape) {
      Tensor tensor(DType::kFloat32, shape);
      for (float& x : tensor.values<float>()) {
        x = static_cast<float>(engine() % 2000) / 1000 - 1;
      }
      return tensor;
    };
    const WeightLayout layout = PyTorchLayout();
    for (const Output& variable : variables) {
      Shape shape = variable.shape();
      if (shape.rank() == 2) shape = {shape[1], shape[0]};
      weights[layout.name(variable)] = drawn(shape);
    }
    return drawn(image.shape());
  }
  Status Load(Session& session) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : weights) {
      tensors.push_back({name, tensor});
    }
    TemporaryFolder folder;
    const std::string path = folder / "w";
    REQUIRE(WriteSafetensors(path, tensors).ok());
    return LoadWeights(session, variables, path);
  }
  // torch.nn.Linear.
  Vector Linear(const std::string& name, const Vector& x) const {
    const Tensor& weight = weights.at(name + ".weight");
    const Tensor& bias = weights.at(name + ".bias");
    const auto width = static_cast<int64_t>(x.size());
    REQUIRE(weight.shape()[1] == width);
    Vector y;
    for (int64_t i = 0; i < weight.shape()[0]; ++i) {
      double sum = bias.At(i);
      for (int64_t j = 0; j < width; ++j) {
        sum += weight.At(i * width + j) * x[static_cast<size_t>(j)];
      }
      y.push_back(sum);
    }
    return y;
  }
};

Vector Plus(Vector a, const Vector& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

Vector Joined(Vector a, const Vector& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// An image [h,w,c], flattened by PyTorch, which has it as [c,h,w].
Vector ChannelsFirst(const Tensor& image) {
  Vector flat;
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int64_t pixel = 0; pixel < kHeight * kWidth; ++pixel) {
      flat.push_back(image.At(pixel * kChannels + c));
    }
  }
  return flat;
}

struct Case {
  std::string name;
  std::function<Output(Network& n, const Output& image)> ours;
  std::function<Vector(const Network& n, const Tensor& image)> theirs;
};

TEST_CASE("PyTorch's weights, of what flattened images are added to") {
  const std::vector<Case> all = {
      {"a residual",
       [](Network& n, const Output& image) {
         const Output flat = layers::Flatten(image);
         return n.Dense("out", flat + n.Dense("fc", flat, kFeatures), 3);
       },
       [](const Network& n, const Tensor& image) {
         const Vector flat = ChannelsFirst(image);
         return n.Linear("out", Plus(flat, n.Linear("fc", flat)));
       }},
      {"a residual of two layers, the inner one narrower",
       [](Network& n, const Output& image) {
         const Output flat = layers::Flatten(image);
         const Output inner = n.Dense("down", flat, 5);
         return n.Dense("out", n.Dense("up", inner, kFeatures) + flat, 3);
       },
       [](const Network& n, const Tensor& image) {
         const Vector flat = ChannelsFirst(image);
         return n.Linear("out",
                         Plus(n.Linear("up", n.Linear("down", flat)), flat));
       }},
      {"a residual of images",
       [](Network& n, const Output& image) {
         const Output moved = n.Dense("fc", layers::Flatten(image), kFeatures);
         const Output sum = image + Reshape(moved, kImages);
         return n.Dense("out", layers::Flatten(sum), 3);
       },
       [](const Network& n, const Tensor& image) {
         const Vector flat = ChannelsFirst(image);
         return n.Linear("out", Plus(flat, n.Linear("fc", flat)));
       }},
      {"joined with other columns",
       [](Network& n, const Output& image) {
         const Output flat = layers::Flatten(image);
         return n.Dense("out", Concat({n.Dense("fc", flat, 2), flat}, 1), 3);
       },
       [](const Network& n, const Tensor& image) {
         const Vector flat = ChannelsFirst(image);
         return n.Linear("out", Joined(n.Linear("fc", flat), flat));
       }},
      {"transposed by the model itself",
       [](Network& n, const Output& image) {
         const Output turned = Transpose(image, {0, 3, 1, 2});
         return n.Dense("out", layers::Flatten(turned), 3);
       },
       [](const Network& n, const Tensor& image) {
         return n.Linear("out", ChannelsFirst(image));
       }},
      {"beside a transpose of the same image",
       [](Network& n, const Output& image) {
         const Output turned = Transpose(image, {0, 3, 1, 2});
         return n.Dense("out", layers::Flatten(image), 3) + Mean(turned);
       },
       [](const Network& n, const Tensor& image) {
         const Vector flat = ChannelsFirst(image);
         const double mean =
             std::accumulate(flat.begin(), flat.end(), 0.0) / kFeatures;
         return Plus(n.Linear("out", flat), Vector(3, mean));
       }},
      {"rows and columns transposed, channels last as before",
       [](Network& n, const Output& image) {
         const Output turned = Transpose(image, {0, 2, 1, 3});
         return n.Dense("out", layers::Flatten(turned), 3);
       },
       [](const Network& n, const Tensor& image) {
         Vector flat;
         for (int64_t c = 0; c < kChannels; ++c) {
           for (int64_t w = 0; w < kWidth; ++w) {
             for (int64_t h = 0; h < kHeight; ++h) {
               flat.push_back(image.At((h * kWidth + w) * kChannels + c));
             }
           }
         }
         return n.Linear("out", flat);
       }},
      {"a second layer of as many units",
       [](Network& n, const Output& image) {
         const Output first = n.Dense("fc", layers::Flatten(image), kFeatures);
         return n.Dense("out", n.Dense("second", first, kFeatures), 3);
       },
       [](const Network& n, const Tensor& image) {
         const Vector first = n.Linear("fc", ChannelsFirst(image));
         return n.Linear("out", n.Linear("second", first));
       }},
  };
  for (const Case& test : all) {
    for (const bool training : {false, true}) {
      CAPTURE(test.name);
      CAPTURE(training);
      Network n;
      const Output y = test.ours(n, n.image);
      n.variables = n.graph.Variables();
      // The same beside gradients and updates.
      if (training) optimizers::Momentum(0.1, 0.9).Minimize(Mean(Square(y)));
      Session session(n.graph);
      session.Initialize();
      const Tensor image = n.Draw(7);
      const Status loaded = n.Load(session);
      REQUIRE_MESSAGE(loaded.ok(), loaded.message());
      const Tensor result = session.Run({{n.image, image}}, y);
      const Vector wanted = test.theirs(n, image);
      REQUIRE(result.elements() == static_cast<int64_t>(wanted.size()));
      for (size_t i = 0; i < wanted.size(); ++i) {
        CHECK(result.At(static_cast<int64_t>(i)) ==
              doctest::Approx(wanted[i]).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("what PyTorch would have in two orders is refused") {
  Network n;
  const Output other =
      n.graph.Placeholder("other", DType::kFloat32, {1, 1, 4, 6});
  n.Dense("fc", layers::Flatten(n.image) + layers::Flatten(other), 3);
  n.variables = n.graph.Variables();
  Session session(n.graph);
  session.Initialize();
  const Tensor before = session.Read(n.graph.Get("fc/weights"));
  n.Draw(7);
  const Status status = n.Load(session);
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(Contains(status.message(), "dimension 0 of variable 'fc/weights'"));
  CHECK(Contains(status.message(), "images of two shapes"));
  CHECK(session.Read(n.graph.Get("fc/weights")).BitEqual(before));
  // Under our names there is one order.
  n.weights = {{"fc/weights", Tensor::Full(DType::kFloat32, {kFeatures, 3}, 1)},
               {"fc/bias", Tensor::Full(DType::kFloat32, {3}, 1)}};
  CHECK(n.Load(session).ok());
}

}  // namespace
}  // namespace sluice
