// Files of weights made by hand: other writers' and wrong ones.
// weights_random_test.cc has random ones, tests/models/zoo/resnet_test.cc those
// with torchvision's names.
#include "models/train/values/weights_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "io/checkpoints/pth.h"
#include "models/nn/classifier.h"
#include "models/nn/layers.h"
#include "models/train/values/weights_of_model.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::TemporaryFolder;

// One part of a network and a file for it.
struct Fixture {
  Graph graph;
  std::unique_ptr<Session> session;
  TemporaryFolder folder;
  std::string path = folder / "weights.safetensors";

  explicit Fixture(const std::string& name = "fc") {
    layers::Dense(Scope(graph) / name,
                  graph.Placeholder("x", DType::kFloat32, {kUnknown, 2}),
                  {.units = 3});
    session = std::make_unique<Session>(graph);
    session->Initialize();
  }
  Tensor Value(const std::string& name) const {
    return session->Read(graph.Get(name));
  }
  Result<LoadedWeights> Load(const WeightsOptions& options = {}) {
    return LoadWeightsWith(*session, graph.Variables(), path, options);
  }
  Result<LoadedWeights> Load(const std::vector<NamedTensor>& tensors,
                             const WeightsOptions& options = {}) {
    REQUIRE(WriteSafetensors(path, tensors).ok());
    return Load(options);
  }
};

Tensor Full(const Shape& shape, double value, DType dtype = DType::kFloat32) {
  return Tensor::Full(dtype, shape, value);
}

TEST_CASE("a file of another writer, byte by byte") {
  // As the safetensors package writes it: metadata of its own, no checksum,
  // the tensors in the order of their names.
  const std::string header =
      R"({"__metadata__":{"format":"pt","x.y/z":"any, \"thing\"\n"},)"
      R"("module.fc.bias":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
      R"("module.fc.weight":{"dtype":"F16","shape":[3,2],)"
      R"("data_offsets":[6,18]}}   )";
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  bytes += header;
  for (const int element : {0x3f80, 0xc000, 0x0001,          // bfloat16
                            0x3c00, 0xc000, 0x0001, 0x7bff,  // float16
                            0x8000, 0x3555}) {
    bytes += static_cast<char>(element & 0xff);
    bytes += static_cast<char>(element >> 8);
  }
  Fixture f;
  REQUIRE(FileSystem::Posix().WriteAtomically(f.path, bytes).ok());
  const Result<LoadedWeights> loaded = f.Load();
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  CHECK(loaded->tensors == 2);
  CHECK(loaded->converted == 2);
  CHECK(f.Value("fc/bias").BitEqual(
      Tensor::Array<float>({3}, {1, -2, 0x1p-133f})));
  CHECK(f.Value("fc/weights")
            .BitEqual(Tensor::Array<float>(
                {2, 3}, {1, 0x1p-24f, -0.0f, -2, 65504, 0x1.554p-2f})));
}

TEST_CASE("float64 is rounded to nearest even") {
  Fixture f;
  const double past = 0x1.ffffffp127;  // half a step beyond the largest float
  REQUIRE(f.Load({{"fc/bias",
                   Tensor::Array<double>({3}, {1 + 0x1p-24, 1 + 0x1.8p-23,
                                               std::nextafter(past, 0)})},
                  {"fc/weights", Full({2, 3}, 0x1p-150, DType::kFloat64)}})
              .ok());
  CHECK(f.Value("fc/bias").BitEqual(Tensor::Array<float>(
      {3}, {1, 1 + 0x1p-22f, std::numeric_limits<float>::max()})));
  CHECK(f.Value("fc/weights").BitEqual(Full({2, 3}, 0)));
}

TEST_CASE("a prefix that is of the model is kept, others go") {
  using Names = std::pair<std::string, std::string>;
  for (const std::string prefix :
       {"", "module.", "model.", "model.module.model."}) {
    CAPTURE(prefix);
    for (const auto& [ours, theirs] :
         {Names("model", "model."), Names("module/model", "module.model.")}) {
      Fixture f(ours);
      CHECK(f.Load({{prefix + theirs + "weight", Full({3, 2}, 5)},
                    {prefix + theirs + "bias", Full({3}, 6)}})
                .ok());
      CHECK(f.Value(ours + "/weights").BitEqual(Full({2, 3}, 5)));
      CHECK(f.Value(ours + "/bias").BitEqual(Full({3}, 6)));
    }
  }
  // Not of all tensors.
  Fixture f;
  const Result<LoadedWeights> loaded = f.Load(
      {{"module.fc.weight", Full({3, 2}, 5)}, {"fc.bias", Full({3}, 6)}});
  CHECK(Contains(loaded.status().message(), "missing: 'fc.weight'"));
  CHECK(Contains(loaded.status().message(), "extra: 'module.fc.weight'"));
}

TEST_CASE("a checkpoint's averages come first, with a prefix, too") {
  Fixture f;
  REQUIRE(f.Load({{"model.fc/weights", Full({2, 3}, 1)},
                  {"model.fc/bias", Full({3}, 2)},
                  {"model.fc/bias/average", Full({3}, 3)},
                  {"model.global_step", Tensor::Scalar<int64_t>(9)}})
              .ok());
  CHECK(f.Value("fc/bias").BitEqual(Full({3}, 3)));
  // Before the first step they are zeros.
  REQUIRE(f.Load({{"model.fc/weights", Full({2, 3}, 1)},
                  {"model.fc/bias", Full({3}, 2)},
                  {"model.fc/bias/average", Full({3}, 0)},
                  {"model.global_step", Tensor::Scalar<int64_t>(0)}})
              .ok());
  CHECK(f.Value("fc/bias").BitEqual(Full({3}, 2)));
}

TEST_CASE("an average of nothing in the file is the model's own") {
  const std::vector<NamedTensor> tensors = {
      {"baseline/average", Full({2}, 3)},
      {"fc/bias", Full({3}, 2)},
      {"fc/bias/average", Full({3}, 4)},
      {"global_step", Tensor::Scalar<int64_t>(0)}};
  for (const int64_t step : {0, 9}) {
    std::vector<NamedTensor> all = tensors;
    all.back().tensor = Tensor::Scalar(step);
    const std::vector<NamedTensor> preferred = PreferAverages(all, {});
    REQUIRE(preferred.size() == 3);
    CHECK(preferred[0].name == "baseline/average");
    CHECK(preferred[1].name == "fc/bias");
    CHECK(preferred[1].tensor.BitEqual(Full({3}, step == 0 ? 2 : 4)));
  }
}

TEST_CASE("a model's own variable is no other's average, by its name") {
  Graph graph;
  const Output x = graph.Variable("x", Zeros({2}));
  const Output own = graph.Variable("x/average", Zeros({2}));
  Session session(graph);
  session.Initialize();
  TemporaryFolder folder;
  const std::string path = folder / "f";
  for (const int64_t step : {0, 9}) {
    // It may have an average, too.
    for (const bool averaged : {false, true}) {
      for (const std::string prefix : {"", "model."}) {
        CAPTURE(step);
        CAPTURE(averaged);
        CAPTURE(prefix);
        std::vector<NamedTensor> tensors = {
            {prefix + "x", Full({2}, 1)},
            {prefix + "x/average", Full({2}, 2)},
            {prefix + "global_step", Tensor::Scalar(step)}};
        if (averaged) {
          tensors.push_back({prefix + "x/average/average", Full({2}, 3)});
        }
        REQUIRE(WriteSafetensors(path, tensors).ok());
        const Status loaded = LoadWeights(session, {x, own}, path);
        REQUIRE_MESSAGE(loaded.ok(), loaded.message());
        const double wanted = averaged && step > 0 ? 3 : 2;
        CHECK(session.Read(x).BitEqual(Full({2}, 1)));
        CHECK(session.Read(own).BitEqual(Full({2}, wanted)));
        if (!prefix.empty()) continue;
        for (const NamedTensor& tensor : PreferAverages(tensors, {x, own})) {
          CAPTURE(tensor.name);
          if (tensor.name == "x") CHECK(tensor.tensor.At(0) == 1);
          if (tensor.name == "x/average") CHECK(tensor.tensor.At(0) == wanted);
          CHECK(tensor.name != "x/average/average");
        }
      }
    }
  }
}

TEST_CASE("a variable below another's name is no slot of it") {
  Graph graph;
  const Output norm = graph.Variable("norm", Zeros({3}));
  const Output weights = graph.Variable("norm/weights", Zeros({2, 3}));
  Session session(graph);
  session.Initialize();
  TemporaryFolder folder;
  const std::string path = folder / "f";
  REQUIRE(WriteSafetensors(path,
                           std::vector<NamedTensor>{
                               {"norm", Full({3}, 1)},
                               {"norm/velocity", Full({3}, 2)},
                               {"norm/weights", Full({2, 3}, 3)},
                               {"norm/weights/velocity", Full({2, 3}, 4)},
                               {"global_step", Tensor::Scalar<int64_t>(9)}})
              .ok());
  const Status loaded = LoadWeights(session, {norm, weights}, path);
  REQUIRE_MESSAGE(loaded.ok(), loaded.message());
  CHECK(session.Read(norm).BitEqual(Full({3}, 1)));
  CHECK(session.Read(weights).BitEqual(Full({2, 3}, 3)));
}

// PyTorch's flatten has the pixels of a channel one behind another.
TEST_CASE("what comes behind Flatten has PyTorch's channels first") {
  constexpr int64_t kHeight = 2, kWidth = 3, kChannels = 4, kUnits = 5;
  constexpr int64_t kFeatures = kHeight * kWidth * kChannels;
  const auto batch_norm = [](const Output& x, bool training, bool of_group) {
    return layers::BatchNorm(
        Scope(x.graph()) / "norm", x,
        {.training = training, .activation = Relu, .synchronized = of_group});
  };
  struct Between {
    std::string name;
    std::function<Output(const Output& x)> op;
  };
  const std::vector<Between> all = {
      {"nothing", [](const Output& x) { return x; }},
      {"dropout",
       [](const Output& x) {
         return layers::Dropout(Scope(x.graph()) / "dropout", Relu(x),
                                {.rate = 0.1, .training = true});
       }},
      {"a factor", [](const Output& x) { return 2 * x; }},
      {"batch norm of training",
       [=](const Output& x) { return batch_norm(x, true, false); }},
      {"batch norm of a group",
       [=](const Output& x) { return batch_norm(2 * x, true, true); }},
      {"batch norm of inference",
       [=](const Output& x) { return 0.5 * batch_norm(x, false, false); }},
      {"layer norm", [](const Output& x) {
         return layers::LayerNorm(Scope(x.graph()) / "norm", x);
       }}};
  for (const Between& between : all) {
    CAPTURE(between.name);
    Graph graph;
    const Output image = graph.Placeholder(
        "image", DType::kFloat32, {kUnknown, kHeight, kWidth, kChannels});
    const Output x = between.op(layers::Flatten(image));
    layers::Dense(Scope(graph) / "fc", x, {.units = kUnits});
    Session session(graph);
    session.Initialize();
    const auto counted = [](const Shape& shape, int64_t first) {
      Tensor tensor(DType::kFloat32, shape);
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        tensor.data<float>()[i] = static_cast<float>(first + i);
      }
      return tensor;
    };
    const Tensor weight = counted({kUnits, kFeatures}, 0);
    std::vector<NamedTensor> tensors = {{"fc.weight", weight},
                                        {"fc.bias", Full({kUnits}, 0)}};
    std::vector<std::pair<std::string, Tensor>> vectors;  // by our names
    const auto names = PyTorchLayout().name;
    for (const Output& variable : graph.Variables()) {
      if (!variable.name().starts_with("norm/")) continue;
      const auto first = static_cast<int64_t>(100 * (vectors.size() + 1));
      vectors.emplace_back(variable.name(), counted({kFeatures}, first));
      tensors.push_back({names(variable), vectors.back().second});
    }
    TemporaryFolder folder;
    const std::string path = folder / "w";
    REQUIRE(WriteSafetensors(path, tensors).ok());
    REQUIRE(LoadWeights(session, graph.Variables(), path).ok());
    const Tensor ours = session.Read(graph.Get("fc/weights"));
    for (int64_t h = 0; h < kHeight; ++h) {
      for (int64_t w = 0; w < kWidth; ++w) {
        for (int64_t c = 0; c < kChannels; ++c) {
          const int64_t theirs = (c * kHeight + h) * kWidth + w;
          const int64_t row = (h * kWidth + w) * kChannels + c;
          for (int64_t unit = 0; unit < kUnits; ++unit) {
            CHECK(ours.At(row * kUnits + unit) ==
                  weight.At(unit * kFeatures + theirs));
          }
          for (const auto& [name, vector] : vectors) {
            CAPTURE(name);
            CHECK(session.Read(graph.Get(name)).At(row) == vector.At(theirs));
          }
        }
      }
    }
    const bool normalised = between.name.find("norm") != std::string::npos;
    const size_t of_batches = between.name == "layer norm" ? 2 : 4;
    CHECK(vectors.size() == (normalised ? of_batches : 0));
  }
}

// As each worker has it of a cut layers::Classifier: all rows, some columns.
TEST_CASE("a part of a matrix behind Flatten has them first, too") {
  Graph graph;
  const Output image =
      graph.Placeholder("image", DType::kFloat32, {kUnknown, 1, 2, 2});
  const layers::Classifier layer(Scope(graph) / "fc", layers::Flatten(image),
                                 {.classes = 4, .workers = 2, .share = 3});
  Graph wholes;
  const std::vector<Output> variables = {
      wholes.Variable("fc/weights", Zeros({4, 4})),
      wholes.Variable("fc/bias", Zeros({4}))};
  Session session(wholes);
  const std::vector<float> rows = {0, 1, 2, 3, 0, 1, 2, 3,
                                   0, 1, 2, 3, 0, 1, 2, 3};
  TemporaryFolder folder;
  const std::string path = folder / "w";
  REQUIRE(WriteSafetensors(
              path,
              std::vector<NamedTensor>{
                  {"fc.weight", Tensor::Array<float>({4, 4}, rows)},
                  {"fc.bias", Tensor::Array<float>({4}, {4, 5, 6, 7})}})
              .ok());
  REQUIRE(LoadWeightsLike(session, variables,
                          {graph.Get("fc/weights"), graph.Get("fc/bias")}, path,
                          {})
              .ok());
  CHECK(session.Read(variables[1])
            .BitEqual(Tensor::Array<float>({4}, {4, 5, 6, 7})));
  for (int64_t out = 0; out < 4; ++out) {
    CAPTURE(out);
    const Tensor weights = session.Read(variables[0]);
    const std::vector<double> wanted = {0, 2, 1, 3};
    for (int64_t row = 0; row < 4; ++row) {
      CHECK(weights.At(4 * row + out) == wanted[static_cast<size_t>(row)]);
    }
  }
}

TEST_CASE("a second layer of as many units is behind no Flatten") {
  constexpr int64_t kUnits = 12;
  Graph graph;
  const Output image =
      graph.Placeholder("image", DType::kFloat32, {kUnknown, 2, 3, 2});
  Output x = layers::Dense(Scope(graph) / "fc1", layers::Flatten(image),
                           {.units = kUnits, .activation = Relu});
  layers::Dense(Scope(graph) / "fc2", x, {.units = kUnits});
  Session session(graph);
  session.Initialize();
  Tensor weight(DType::kFloat32, {kUnits, kUnits});
  for (int64_t i = 0; i < weight.elements(); ++i) {
    weight.data<float>()[i] = static_cast<float>(i);
  }
  TemporaryFolder folder;
  const std::string path = folder / "w";
  REQUIRE(WriteSafetensors(
              path, std::vector<NamedTensor>{{"fc1.weight", weight},
                                             {"fc1.bias", Full({kUnits}, 0)},
                                             {"fc2.weight", weight},
                                             {"fc2.bias", Full({kUnits}, 0)}})
              .ok());
  REQUIRE(LoadWeights(session, graph.Variables(), path).ok());
  const Tensor second = session.Read(graph.Get("fc2/weights"));
  for (int64_t in = 0; in < kUnits; ++in) {
    for (int64_t out = 0; out < kUnits; ++out) {
      CHECK(second.At(in * kUnits + out) == weight.At(out * kUnits + in));
    }
  }
}

TEST_CASE("a name that is the same in both spellings decides nothing") {
  Graph graph;
  const Output token = graph.Variable("token", Zeros({4}));
  const Output weights = graph.Variable("fc/weights", Zeros({2, 3}));
  Session session(graph);
  session.Initialize();
  TemporaryFolder folder;
  const std::string path = folder / "f";
  Tensor theirs(DType::kFloat32, {3, 2});
  for (int i = 0; i < 6; ++i) theirs.data<float>()[i] = static_cast<float>(i);
  REQUIRE(
      WriteSafetensors(path, std::vector<NamedTensor>{{"token", Full({4}, 1)},
                                                      {"fc.weight", theirs}})
          .ok());
  REQUIRE(LoadWeights(session, graph.Variables(), path).ok());
  CHECK(session.Read(token).BitEqual(Full({4}, 1)));
  CHECK(session.Read(weights).BitEqual(
      Tensor::Array<float>({2, 3}, {0, 2, 4, 1, 3, 5})));
}

// --- Wrong files -------------------------------------------------------------

TEST_CASE("each mistake is an error that says it and changes nothing") {
  Fixture f;
  const Tensor weights = f.Value("fc/weights"), bias = f.Value("fc/bias");
  const auto check = [&](const Result<LoadedWeights>& loaded,
                         const std::string& message) {
    CHECK(loaded.status().code() == Code::kInvalidArgument);
    CHECK(Contains(loaded.status().message(), message));
    CHECK(f.Value("fc/weights").BitEqual(weights));
    CHECK(f.Value("fc/bias").BitEqual(bias));
  };
  const NamedTensor good = {"fc/weights", Full({2, 3}, 7)};
  check(f.Load({good}), "does not fit this model; missing: 'fc/bias' float32");
  check(f.Load({good, {"fc/bias", Full({3}, 1)}, {"more", Full({1}, 1)}}),
        "extra: 'more'");
  check(f.Load({good, {"fc/bias", Full({3}, 1, DType::kInt32)}}),
        "reshaped: 'fc/bias' is int32[3] in the file, float32[3] in the model");
  check(f.Load({{"fc.weight", Full({3, 2}, 7)},
                {"fc.bias", Full({3}, -1e300, DType::kFloat64)}}),
        "beyond float32: 'fc.bias' has -1e+300");
  check(f.Load({good, {"fc/bias", Full({3}, 0x1.ffffffp127, DType::kFloat64)}}),
        "beyond float32: 'fc/bias'");
  check(f.Load({good}, {.reset = "fc/bias,"}),
        "reset: 'fc/bias,' has an empty pattern");
  check(f.Load({good}, {.reset = "fc/bias,fc.*"}),
        "reset: 'fc.*' matches none of the 2 names 'fc/weights', 'fc/bias'");
  // What is reset does not excuse the rest.
  check(f.Load({{"fc/bias", Full({3}, 1)}}, {.reset = "fc/bias"}),
        "missing: 'fc/weights'");
  CHECK(f.Load({good}, {.reset = "fc/bias"}).ok());
}

TEST_CASE("integers take no floats") {
  Graph graph;
  const Output count = graph.Variable(
      "norm/count", initializers::Constant(4)({2}, DType::kInt64));
  Session session(graph);
  session.Initialize();
  TemporaryFolder folder;
  const std::string path = folder / "f";
  REQUIRE(WriteSafetensors(
              path, std::vector<NamedTensor>{{"norm/count", Full({2}, 1)}})
              .ok());
  CHECK(Contains(LoadWeights(session, {count}, path).message(),
                 "'norm/count' is float32[2] in the file, int64[2]"));
  CHECK(session.Read(count).IntAt(1) == 4);
}

TEST_CASE("other shapes are told of reset where little is wrong") {
  Fixture f;
  const Status few =
      f.Load({{"fc.weight", Full({5, 2}, 1)}, {"fc.bias", Full({3}, 1)}})
          .status();
  CHECK(few.message().ends_with(
      "'fc.weight' is float32[5,2] in the file, float32[3,2] in the model; "
      "leave 'fc/weights' at its first value with a reset pattern"));
  const Status two =
      f.Load({{"fc.weight", Full({5, 2}, 1)}, {"fc.bias", Full({5}, 1)}})
          .status();
  CHECK(
      two.message().ends_with("; leave 'fc/weights', 'fc/bias' at their "
                              "first values with a reset pattern"));
  CHECK(f.Load({{"fc.weight", Full({5, 2}, 1)}, {"fc.bias", Full({5}, 1)}},
               {.reset = "fc/*"})
            .ok());
  // Another dtype alone is no reason, nor is a file of another model.
  std::vector<NamedTensor> tensors = {
      {"fc.weight", Full({3, 2}, 1, DType::kInt32)}, {"fc.bias", Full({3}, 1)}};
  CHECK(f.Load(tensors).status().message().find("reset") == std::string::npos);
  tensors[0].tensor = Full({5, 2}, 1);
  for (int i = 0; i < 7; ++i) {
    tensors.push_back({fmt::format("other{}", i), Full({1}, 1)});
  }
  CHECK(Contains(f.Load(tensors).status().message(), "reset pattern"));
  tensors.push_back({"other", Full({1}, 1)});
  CHECK(f.Load(tensors).status().message().find("reset") == std::string::npos);
}

TEST_CASE("PyTorch's own files go to their reader") {
  Fixture f;
  const std::string bytes = "PK\3\4 and no more of a zip archive";
  REQUIRE(FileSystem::Posix().WriteAtomically(f.path, bytes).ok());
  const Status status = ReadWeightTensors(f.path).status();
  CHECK_FALSE(status.ok());
  CHECK(status.message() == ReadPth(f.path).status().message());
  CHECK(f.Load().status().message() == status.message());
}

TEST_CASE("files that are none") {
  Fixture f;
  CHECK(f.Load().status().code() == Code::kNotFound);
  REQUIRE(FileSystem::Posix().WriteAtomically(f.path, "weights").ok());
  CHECK(f.Load().status().code() == Code::kDataLoss);
  CHECK(ReadWeightTensors(f.path).status().code() == Code::kDataLoss);
  REQUIRE(WriteSafetensors(f.path, {}).ok());
  CHECK(Contains(f.Load().status().message(), "missing: 'fc/weights'"));
}

}  // namespace
}  // namespace sluice
