// Residual networks beside torchvision's (tests/golden/resnet.safetensors), and
// files of weights.
#include "models/zoo/resnet.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zlib.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "io/checkpoints/safetensors.h"
#include "models/train/values/weights_file.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using testing::TemporaryFolder;

// --- The rule of the goldens (make_resnet_goldens.py) ------------------------

// Numbers that follow from a name.
class NamedNumbers {
 public:
  explicit NamedNumbers(const std::string& name)
      : crc_(static_cast<uint32_t>(
            crc32(0, reinterpret_cast<const Bytef*>(name.data()),
                  static_cast<uInt>(name.size())))) {}
  uint32_t Bits(int64_t i) const {
    auto h =
        static_cast<uint32_t>(static_cast<uint64_t>(i) * 0x9E3779B9u + crc_);
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    return h ^ (h >> 16);
  }
  double Uniform(int64_t i) const { return (Bits(i) >> 11) * 0x1p-20 - 1; }

 private:
  uint32_t crc_;
};

Tensor Filled(const Shape& shape, const std::function<double(int64_t)>& fn) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.data<float>()[i] = static_cast<float>(fn(i));
  }
  return tensor;
}

// What PyTorch's tensor of that name holds.
Tensor ValueOf(const std::string& name, const Shape& shape) {
  double factor = 0.125, centre = 0;
  if (shape.rank() == 4) {
    const auto fan_out = static_cast<double>(shape[0] * shape[2] * shape[3]);
    factor = std::exp2(std::round(std::log2(std::sqrt(6 / fan_out))));
  } else if (shape.rank() == 2) {
    factor = 1.0 / 32;
  } else if (name.ends_with("running_var")) {
    factor = 0.5;
    centre = 1;
  } else if (name.ends_with("weight")) {
    centre = name.ends_with("bn3.weight") ? 0.25 : 1;
    factor = centre / 4;
  }
  const NamedNumbers numbers(name);
  return Filled(
      shape, [&](int64_t i) { return centre + factor * numbers.Uniform(i); });
}

// --- Comparing ---------------------------------------------------------------

struct Golden {
  std::map<std::string, Tensor> tensors;
  Json about;
};

Golden Read(const std::string& model) {
  const Safetensors file =
      ReadSafetensors(SLUICE_SOURCE_DIR "/tests/golden/resnet.safetensors")
          .ValueOrThrow();
  Golden golden;
  golden.about = Json::parse(file.metadata.at(model));
  for (const NamedTensor& t : file.tensors) {
    if (t.name.starts_with(model + "/")) {
      golden.tensors[t.name.substr(model.size() + 1)] = t.tensor;
    }
  }
  return golden;
}

std::vector<NamedTensor> PyTorchTensors(const Json& about) {
  std::vector<NamedTensor> tensors;
  for (const char* kind : {"parameters", "statistics"}) {
    for (const auto& [name, dims] : about[kind].items()) {
      const Shape shape{
          std::span<const int64_t>(dims.get<std::vector<int64_t>>())};
      tensors.push_back({name, ValueOf(name, shape)});
    }
  }
  return tensors;
}

double RelativeError(const Tensor& got, const Tensor& want) {
  REQUIRE(got.elements() == want.elements());
  double error = 0, norm = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    error += std::pow(got.At(i) - want.At(i), 2);
    norm += std::pow(want.At(i), 2);
  }
  return std::sqrt(error / norm);
}

// How far our tensor, in the layout of the variable, is from a digest: the
// norm and the projection in units of the norm, elements in units of the
// largest of them or the mean square, whichever is more.
double DigestError(const std::string& name, const Tensor& ours,
                   const Tensor& digests, int64_t row) {
  // The element of ours that is element i of PyTorch's.
  const Shape& shape = ours.shape();
  const auto at = [&](int64_t i) -> int64_t {
    if (shape.rank() == 2) {  // [in, out] for [out, in]
      return i % shape[0] * shape[1] + i / shape[0];
    }
    if (shape.rank() != 4) return i;
    const int64_t width = shape[1], inputs = shape[2], outputs = shape[3];
    const int64_t w = i % width, h = i / width % shape[0];
    const int64_t in = i / (width * shape[0]) % inputs;
    const int64_t out = i / (width * shape[0] * inputs);
    return ((h * width + w) * inputs + in) * outputs + out;
  };
  const int64_t n = ours.elements();
  const NamedNumbers direction(name + "/projection"), samples(name + "/sample");
  double squares = 0, projection = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = ours.At(at(i));
    squares += x * x;
    projection += x * direction.Uniform(i);
  }
  const auto wanted = [&](int64_t i) { return digests.At(row * 6 + i); };
  const double norm = wanted(0);
  double largest = norm / std::sqrt(static_cast<double>(n));
  for (int64_t i = 2; i < 6; ++i) {
    largest = std::max(largest, std::abs(wanted(i)));
  }
  double worst = std::max(std::abs(std::sqrt(squares) - norm),
                          std::abs(projection - wanted(1))) /
                 norm;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t place = samples.Bits(i) % n;
    worst =
        std::max(worst, std::abs(ours.At(at(place)) - wanted(2 + i)) / largest);
  }
  return worst;
}

struct Model {
  Graph graph;
  Output image, label, logits, loss;
  Model(const std::string& name, int64_t classes, bool training,
        DType dtype = DType::kFloat32) {
    image =
        graph.Placeholder("image", dtype, {kUnknown, kUnknown, kUnknown, 3});
    label = graph.Placeholder("label", DType::kInt64, {kUnknown});
    logits = ResNet(Scope(graph), name, image,
                    {.classes = classes, .training = training});
    loss = Mean(SparseSoftmaxCrossEntropy(logits, label));
  }
};

// One golden and a file of its weights.
class Comparison {
 public:
  Comparison(const std::string& name, DType dtype)
      : name_(name), dtype_(dtype), golden_(Read(name)) {
    std::vector<NamedTensor> tensors = PyTorchTensors(about());
    for (NamedTensor& t : tensors) t.tensor = t.tensor.Cast(dtype);
    REQUIRE(WriteSafetensors(path_, tensors).ok());
    const int64_t n = about()["images"], side = about()["side"];
    images_ = Filled({n, side, side, 3}, [numbers = NamedNumbers("image")](
                                             int64_t i) {
                return numbers.Uniform(i);
              }).Cast(dtype);
    labels_ = Tensor(DType::kInt64, {n});
    for (int64_t i = 0; i < n; ++i) {
      labels_.data<int64_t>()[i] = i * 37 % classes();
    }
  }

  void CheckInference(double tolerance) const {
    Model model(name_, classes(), false, dtype_);
    Session session(model.graph);
    REQUIRE(LoadWeights(session, model.graph.Variables(), path_).ok());
    const Tensor logits = session.Run({{model.image, images_}}, model.logits);
    CHECK(RelativeError(logits, wanted("eval_logits")) < tolerance);
  }

  void CheckTraining(double tolerance, double gradient_tolerance) const {
    Model model(name_, classes(), true, dtype_);
    const std::vector<Output> variables = model.graph.TrainableVariables();
    std::vector<Output> fetches = Gradients({model.loss}, variables);
    fetches.push_back(model.logits);
    fetches.push_back(model.loss);
    Session session(model.graph);
    REQUIRE(LoadWeights(session, model.graph.Variables(), path_).ok());
    std::vector<Tensor> values =
        session.Run({{model.image, images_}, {model.label, labels_}}, fetches,
                    model.graph.updates());
    CHECK(RelativeError(values.back(), wanted("loss")) < tolerance);
    values.pop_back();
    CHECK(RelativeError(values.back(), wanted("logits")) < tolerance);
    values.pop_back();

    std::map<std::string, Tensor> gradients, statistics;
    for (size_t i = 0; i < variables.size(); ++i) {
      gradients[PyTorchLayout().name(variables[i])] = values[i];
    }
    for (const Output& variable : model.graph.Variables()) {
      const std::string name = PyTorchLayout().name(variable);
      if (!gradients.contains(name)) statistics[name] = session.Read(variable);
    }
    CheckDigests(gradients, "parameters", "gradients", gradient_tolerance);
    CheckDigests(statistics, "statistics", "statistics", tolerance);
  }

 private:
  const Json& about() const { return golden_.about; }
  int64_t classes() const { return about()["classes"]; }
  const Tensor& wanted(const std::string& what) const {
    return golden_.tensors.at(what);
  }
  // All of PyTorch's names must be there, and no other.
  void CheckDigests(const std::map<std::string, Tensor>& ours,
                    const std::string& names, const std::string& what,
                    double tolerance) const {
    CHECK(ours.size() == about()[names].size());
    double worst = 0;
    int64_t row = 0;
    for (const auto& [name, shape] : about()[names].items()) {
      CAPTURE(name);
      REQUIRE(ours.contains(name));
      const double error =
          DigestError(name, ours.at(name), wanted(what), row++);
      worst = std::max(worst, error);
      CHECK(error < tolerance);
    }
    MESSAGE(name_, " ", NameOf(dtype_), " ", what, ": ", worst);
  }

  std::string name_;
  DType dtype_;
  Golden golden_;
  TemporaryFolder folder_;
  std::string path_ = folder_ / "weights.safetensors";
  Tensor images_, labels_;
};

// Gradients are compared in float64: in float32 one rectifier whose input
// rounding moves across zero changes them by up to some per cent, in PyTorch's
// own float32 against its float64, too.
void CheckModel(const std::string& name) {
  const Comparison exact(name, DType::kFloat64);
  exact.CheckInference(1e-6);
  exact.CheckTraining(1e-6, 1e-6);
  const Comparison fast(name, DType::kFloat32);
  fast.CheckInference(1e-4);
  fast.CheckTraining(1e-4, 0.1);
}

TEST_CASE("resnet18 agrees with torchvision") {
  CheckModel("resnet18");
}
TEST_CASE("resnet50 agrees with torchvision") {
  CheckModel("resnet50");
}
TEST_CASE("resnet50 v1 strides in the first convolution of a block") {
  CheckModel("resnet50_v1");
}
TEST_CASE("resnet20 for CIFAR agrees with PyTorch") {
  CheckModel("resnet20");
}

// --- All models --------------------------------------------------------------

TEST_CASE("every model has the parameters of its paper") {
  // Trainable ones, as torchvision counts them; for CIFAR, table 6 of the paper
  // rounds them to 0.27 and 0.85 million.
  const std::map<std::string, int64_t> wanted = {
      {"resnet18", 11689512},     {"resnet34", 21797672},
      {"resnet50", 25557032},     {"resnet101", 44549160},
      {"resnet152", 60192808},    {"resnet50_v1", 25557032},
      {"resnet101_v1", 44549160}, {"resnet152_v1", 60192808},
      {"resnet20", 269722},       {"resnet56", 853018}};
  CHECK(ResNetNames().size() == wanted.size());
  for (const std::string& name : ResNetNames()) {
    CAPTURE(name);
    Model model(name, IsCifarResNet(name) ? 10 : 1000, true);
    int64_t count = 0;
    for (const Output& variable : model.graph.TrainableVariables()) {
      count += variable.shape().elements();
    }
    CHECK(count == wanted.at(name));
  }
}

TEST_CASE("an unknown model is told with those there are") {
  Graph graph;
  const Output image =
      graph.Placeholder("image", DType::kFloat32, {1, 32, 32, 3});
  CHECK_THROWS_WITH_AS(ResNet(Scope(graph), "resnet51", image),
                       doctest::Contains("unknown model 'resnet51'; known are "
                                         "resnet18, resnet34, resnet50"),
                       Error);
}

// --- Files of weights --------------------------------------------------------

struct Small {
  Model model{"resnet20", 10, true};
  std::unique_ptr<Session> session;
  TemporaryFolder folder;
  std::string path = folder / "weights.safetensors";
  Json about = Read("resnet20").about;
  std::vector<NamedTensor> tensors = PyTorchTensors(about);

  Small() {
    session = std::make_unique<Session>(model.graph);
    session->Initialize();
  }
  NamedTensor& Find(const std::string& name) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const auto& t) { return t.name == name; });
  }
  Status Load() {
    REQUIRE(WriteSafetensors(path, tensors).ok());
    return LoadWeights(*session, model.graph.Variables(), path);
  }
  Tensor Value(const std::string& name) const {
    return session->Read(model.graph.Get(name));
  }
};

TEST_CASE("weights that do not fit are listed and nothing is written") {
  Small small;
  std::vector<Tensor> before;
  for (const Output& variable : small.model.graph.Variables()) {
    before.push_back(small.session->Read(variable));
  }
  small.Find("layer1.0.conv1.weight").tensor =
      Tensor(DType::kFloat32, {16, 16, 3, 5});
  small.Find("fc.weight").tensor = Tensor(DType::kInt32, {10, 64});
  std::erase_if(small.tensors, [](const NamedTensor& t) {
    return t.name.starts_with("layer2.1.");
  });
  small.tensors.push_back({"fc2.weight", Tensor(DType::kFloat32, {1})});
  const Status status = small.Load();
  CHECK(status.code() == Code::kInvalidArgument);
  for (const char* part :
       {"weights.safetensors' does not fit this model",
        "; missing: ", "'layer2.1.bn1.bias' float32[32]",
        "'layer2.1.conv1.weight' float32[32,32,3,3]",
        "'layer2.1.conv2.weight' float32[32,32,3,3]",
        "'layer2.1.bn2.running_var' float32[32]",
        "'layer1.0.conv1.weight' is float32[16,16,3,5] in the file, "
        "float32[16,16,3,3] in the model",
        "'fc.weight' is int32[10,64] in the file, float32[10,64] in the "
        "model",
        "extra: 'fc2.weight'"}) {
    CAPTURE(part);
    CAPTURE(status.message());
    CHECK(status.message().find(part) != std::string::npos);
  }
  CHECK(status.message().find('\n') == std::string::npos);
  size_t i = 0;
  for (const Output& variable : small.model.graph.Variables()) {
    CHECK(small.session->Read(variable).BitEqual(before[i++]));
  }
}

TEST_CASE("of another model's file only the first names are said") {
  Small small;
  Model other("resnet56", 10, true);
  Session session(other.graph);
  session.Initialize();
  REQUIRE(small.Load().ok());
  const Status status =
      LoadWeights(session, other.graph.Variables(), small.path);
  CAPTURE(status.message());
  // Three stages of six blocks more, ten tensors in each.
  CHECK(status.message().find("; missing: 'layer1.3.conv1.weight'") !=
        std::string::npos);
  CHECK(status.message().find(" and 176 more") != std::string::npos);
  CHECK(status.message().size() < 400);
}

TEST_CASE("num_batches_tracked is passed over, filters are transposed") {
  Small small;
  small.tensors.push_back(
      {"bn1.num_batches_tracked", Tensor::Scalar(int64_t{7})});
  REQUIRE(small.Load().ok());
  const Tensor filter = small.Value("layer2/0/conv1/weights");  // HWIO
  const Tensor theirs = small.Find("layer2.0.conv1.weight").tensor;
  // [h=2, w=1, i=5, o=30] and [30, 5, 2, 1].
  CHECK(filter.At(((2 * 3 + 1) * 16 + 5) * 32 + 30) ==
        theirs.At(((30 * 16 + 5) * 3 + 2) * 3 + 1));
  CHECK(small.Value("fc/weights").At(3 * 10 + 7) ==
        small.Find("fc.weight").tensor.At(7 * 64 + 3));
  CHECK(small.Value("bn1/running_variance")
            .BitEqual(small.Find("bn1.running_var").tensor));
}

TEST_CASE("our own files load, what training adds to them is passed over") {
  Small small;
  const std::vector<NamedTensor> ours =
      ReadVariables(*small.session, small.model.graph.Variables());
  small.tensors = ours;
  small.tensors.push_back({"global_step", Tensor::Scalar(int64_t{7})});
  small.tensors.push_back({"fc/bias/velocity", Tensor(DType::kFloat32, {10})});
  small.tensors.push_back(
      {"fc/bias/average", Tensor::Full(DType::kFloat32, {10}, 3)});
  CHECK(small.Load().ok());
  CHECK(small.Value("fc/bias").At(9) == 3);
  CHECK(small.Value("fc/weights").BitEqual(small.Find("fc/weights").tensor));

  small.tensors = ours;
  small.tensors.push_back({"fc2/bias", Tensor(DType::kFloat32, {10})});
  const Status status = small.Load();
  CHECK(status.message().find("; extra: 'fc2/bias'") != std::string::npos);
  CHECK(small.Value("fc/bias").At(9) == 3);
}

}  // namespace
}  // namespace sluice
