// Networks that flatten images, with PyTorch's weights: what they compute
// beside loops over images [c,h,w], as PyTorch has them.
#include "models/train/values/flattened_images.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
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

Vector Rectified(Vector x) {
  for (double& one : x) one = std::max(one, 0.0);
  return x;
}

Vector SoftmaxOf(Vector x) {
  for (double& one : x) one = std::exp(one);
  const double sum = std::accumulate(x.begin(), x.end(), 0.0);
  for (double& one : x) one /= sum;
  return x;
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

// That it computes what PyTorch does, and the same beside gradients and
// updates.
void Check(const Case& test) {
  for (const bool training : {false, true}) {
    CAPTURE(test.name);
    CAPTURE(training);
    Network n;
    const Output y = test.ours(n, n.image);
    n.variables = n.graph.Variables();
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
  for (const Case& test : all) Check(test);
}

// Turned by the model, with something done between that and Flatten.
TEST_CASE("PyTorch's weights of images that the model has turned for it") {
  const auto flat = [](const Network& n, const Tensor& image) {
    return n.Linear("out", Rectified(ChannelsFirst(image)));
  };
  const std::vector<Case> all = {
      {"an activation",
       [](Network& n, const Output& image) {
         const Output turned = Transpose(image, {0, 3, 1, 2});
         return n.Dense("out", layers::Flatten(Relu(turned)), 3);
       },
       flat},
      {"dropout",
       [](Network& n, const Output& image) {
         const Output x = layers::Dropout(n.scope / "dropout",
                                          Transpose(Relu(image), {0, 3, 1, 2}),
                                          {.rate = 1e-6, .training = true});
         return n.Dense("out", layers::Flatten(x), 3);
       },
       flat},
      {"padding, of which only some is left, behind a layer",
       [](Network& n, const Output& image) {
         const Output moved = n.Dense("fc", layers::Flatten(image), kFeatures);
         const Output turned = Transpose(Reshape(moved, kImages), {0, 3, 1, 2});
         const Output wider = Pad(turned, {0, 0, 0, 0, 1, 2, 0, 1});
         const Output x =
             Slice(wider, {0, 0, 1, 0}, {1, kChannels, kHeight, kWidth});
         return n.Dense("out", layers::Flatten(x), 3);
       },
       [](const Network& n, const Tensor& image) {
         return n.Linear("out", n.Linear("fc", ChannelsFirst(image)));
       }},
      {"joined ones, behind a layer",
       [](Network& n, const Output& image) {
         const Output moved = n.Dense("fc", layers::Flatten(image), kFeatures);
         const Output x = Transpose(Reshape(moved, kImages), {0, 3, 1, 2});
         const Output both = Concat({Relu(x), x}, 1);
         return n.Dense("out", layers::Flatten(both), 3);
       },
       [](const Network& n, const Tensor& image) {
         const Vector moved = n.Linear("fc", ChannelsFirst(image));
         return n.Linear("out", Joined(Rectified(moved), moved));
       }},
      {"back again",
       [](Network& n, const Output& image) {
         const Output turned = Relu(Transpose(image, {0, 3, 1, 2}));
         const Output back = Transpose(turned, {0, 2, 3, 1});
         return n.Dense("out", layers::Flatten(back), 3);
       },
       flat},
      {"columns that become PyTorch's images, and then ours",
       [](Network& n, const Output& image) {
         const Output moved = n.Dense("fc", layers::Flatten(image), kFeatures);
         const Output x = Reshape(moved, {1, kChannels, kHeight, kWidth});
         const Output sum = image + Transpose(Relu(x), {0, 2, 3, 1});
         return n.Dense("out", layers::Flatten(sum), 3);
       },
       [](const Network& n, const Tensor& image) {
         const Vector columns = ChannelsFirst(image);
         return n.Linear("out",
                         Plus(columns, Rectified(n.Linear("fc", columns))));
       }},
  };
  for (const Case& test : all) Check(test);
}

// Each makes the row of a flattened image, or two of it, into one.
TEST_CASE("PyTorch's weights behind what takes rows of flattened images") {
  const auto twice = [](const Output& x) { return Concat({x, x}, 0); };
  const std::vector<std::pair<std::string, std::function<Output(Output)>>> all =
      {{"Split", [&](const Output& x) { return Split(twice(x), 2)[1]; }},
       {"Slice",
        [&](const Output& x) {
          return Slice(twice(x), {1, 0}, {1, -1});
        }},
       {"StridedSlice",
        [&](const Output& x) {
          return StridedSlice(twice(x), {.begin = {1}, .end = {2}});
        }},
       {"Gather",
        [&](const Output& x) {
          return Gather(twice(x),
                        x.graph().Constant(Tensor::Array<int64_t>({1}, {1})));
        }},
       {"Unstack",
        [](const Output& x) {
          return Unstack(Stack({x, x}, 1), 1)[0];
        }},
       {"Tile",
        [](const Output& x) {
          return Slice(Tile(x, {3, 1}), {2, 0}, {1, -1});
        }},
       {"Pad",
        [](const Output& x) {
          return Slice(Pad(x, {1, 0, 0, 0}), {1, 0}, {1, -1});
        }},
       {"BroadcastTo",
        [](const Output& x) {
          return Slice(BroadcastTo(x, {2, kFeatures}), {0, 0}, {1, -1});
        }},
       {"Mean",
        [](const Output& x) {
          return Mean(Reshape(x, {1, 1, kFeatures}), {1});
        }},
       {"Max, its dimension kept", [&](const Output& x) {
          return Max(twice(x), {-2}, /*keep_dims=*/true);
        }}};
  for (const auto& [name, row] : all) {
    Check({name,
           [row = row](Network& n, const Output& image) {
             return n.Dense("out", row(layers::Flatten(image)), 3);
           },
           [](const Network& n, const Tensor& image) {
             return n.Linear("out", ChannelsFirst(image));
           }});
  }
  Check({"Softmax",
         [](Network& n, const Output& image) {
           const Output x = Softmax(layers::Flatten(image));
           return n.Dense("out", x + Exp(LogSoftmax(x)), 3);
         },
         [](const Network& n, const Tensor& image) {
           const Vector x = SoftmaxOf(ChannelsFirst(image));
           return n.Linear("out", Plus(x, SoftmaxOf(x)));
         }});
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
