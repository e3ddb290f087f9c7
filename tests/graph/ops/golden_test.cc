// Every case of tests/golden/*.safetensors, values that PyTorch computed:
// outputs and gradients in float64 and float32, ten steps of every optimizer.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/kernel.h"
#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/loss.h"
#include "io/checkpoints/safetensors.h"
#include "tests/places.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

struct Golden {
  Metadata cases;
  std::map<std::string, Tensor> tensors;
};

Golden Read(const std::string& family) {
  Safetensors file = ReadSafetensors(SLUICE_SOURCE_DIR "/tests/golden/" +
                                     family + ".safetensors")
                         .ValueOrThrow();
  Golden golden;
  golden.cases = file.metadata;
  for (const NamedTensor& t : file.tensors) golden.tensors[t.name] = t.tensor;
  return golden;
}

AttrValue ToAttr(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return value.get<std::vector<int64_t>>();
}

Attributes ToAttributes(const Json& object) {
  Attributes attrs;
  for (const auto& [name, value] : object.items()) {
    attrs.Set(name, ToAttr(value));
  }
  return attrs;
}

// The distance of each element from the wanted one, in units of 1 + its size
// and of the largest wanted element's.
void CheckClose(const std::string& what, const Tensor& got, const Tensor& want,
                double tolerance) {
  INFO(what);
  REQUIRE(got.shape() == want.shape());
  double largest = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    largest = std::max(largest, std::abs(want.At(i)));
  }
  double worst = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double error = std::abs(got.At(i) - want.At(i)) / (1e-3 + largest);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  CHECK(worst <= tolerance);
}

// The nodes of a case: outputs in the order of the file.
std::vector<Output> Build(Graph& graph, const Json& about,
                          const std::vector<Operand>& inputs) {
  std::string op = about["op"];
  if (op == "MeanSquaredError") return {MeanSquaredError(inputs[0], inputs[1])};
  Json attributes = about["attributes"];
  const bool batch_norm = op == "BatchNorm";
  const bool training = attributes.value("training", false);
  attributes.erase("training");
  if (batch_norm && !training) {
    op = "BatchNormInference";
    attributes.erase("momentum");
  }
  Node& node = graph.Add({op, inputs, ToAttributes(attributes)});
  if (batch_norm && training) {
    return {node.output(0), node.output(3), node.output(4)};
  }
  return {node.output(0)};
}

// float64 must agree to rounding; what float32 loses depends on the case.
void CheckCase(const Golden& golden, const std::string& name, DType dtype,
               double tolerance) {
  const Json about = Json::parse(golden.cases.at(name));
  auto tensor = [&](const std::string& key) {
    const Tensor& value = golden.tensors.at(name + "/" + key);
    return IsFloating(value.dtype()) ? value.Cast(dtype) : value;
  };
  // NumPy stored scalars as vectors of one element.
  auto shaped = [&](const std::string& key, const Output& like) {
    const Tensor value = tensor(key);
    return like.shape().scalar() ? value.Reshaped({}) : value;
  };
  Graph graph;
  std::map<Output, Tensor> given;
  std::vector<Output> inputs;
  for (int i = 0; i < about["inputs"].get<int>(); ++i) {
    const Tensor value = tensor(fmt::format("in{}", i));
    inputs.push_back(graph.Placeholder(fmt::format("in{}", i), value.dtype(),
                                       value.shape()));
    given[inputs.back()] = value;
  }
  const std::vector<Output> outputs =
      Build(graph, about, {inputs.begin(), inputs.end()});
  REQUIRE(outputs.size() == about["outputs"].get<size_t>());
  for (size_t i = 0; i < outputs.size(); ++i) {
    CheckClose(fmt::format("{} out{} {}", name, i, NameOf(dtype)),
               Evaluate(outputs[i], given).ValueOrThrow(),
               shaped(fmt::format("out{}", i), outputs[i]), tolerance);
  }
  const Tensor seed = shaped("grad_out0", outputs[0]);
  const Output dy = graph.Placeholder("dy", seed.dtype(), seed.shape());
  given[dy] = seed;
  const std::vector<Output> gradients = Gradients({outputs[0]}, inputs, {dy});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string key = fmt::format("grad_in{}", i);
    if (!golden.tensors.contains(fmt::format("{}/{}", name, key))) continue;
    INFO(name, " ", key);
    REQUIRE(gradients[i].valid());
    CheckClose(fmt::format("{} {} {}", name, key, NameOf(dtype)),
               Evaluate(gradients[i], given).ValueOrThrow(), tensor(key),
               tolerance);
  }
}

void CheckFamily(const std::string& family, int cases) {
  const Golden golden = Read(family);
  CHECK(static_cast<int>(golden.cases.size()) == cases);
  for (const auto& [name, about] : golden.cases) {
    CheckCase(golden, name, DType::kFloat64, 1e-9);
    // A mean of 1000 leaves float32 three digits less.
    const bool lossy = name.find("large_mean") != std::string::npos;
    CheckCase(golden, name, DType::kFloat32, lossy ? 3e-3 : 3e-5);
  }
}

// --- Optimizers --------------------------------------------------------------

// One kernel, run step after step on the same variables.
class Updater {
 public:
  Updater(const Json& about, std::vector<Tensor> variables)
      : variables_(std::move(variables)) {
    std::string op = about["op"];
    Json hyperparameters = about["hyperparameters"];
    hyperparameters.erase("initial_accumulator");
    if (op == "ApplyRmsProp") {
      if (hyperparameters["momentum"] == 0.0) {
        hyperparameters.erase("momentum");
      } else {
        op = "ApplyRmsPropMomentum";
      }
    }
    std::vector<Operand> inputs;
    auto add = [&](const std::string& name, DType dtype, const Shape& shape) {
      inputs.emplace_back(graph_.Placeholder(name, dtype, shape));
    };
    const Tensor& parameter = variables_[0];
    for (size_t i = 0; i < variables_.size(); ++i) {
      add(fmt::format("variable{}", i), parameter.dtype(), parameter.shape());
    }
    add("learning_rate", DType::kFloat32, {});
    counts_ = op.starts_with("ApplyAdam");
    if (counts_) add("step", DType::kInt64, {});
    add("gradient", parameter.dtype(), parameter.shape());
    const Node& node = graph_.Add({op, inputs, ToAttributes(hyperparameters)});
    const KernelSpec spec = SpecOf(node, false);
    kernel_ =
        (*KernelTable::Global().Find(spec, DeviceType::kCpu).ValueOrThrow())
            .make(spec)
            .ValueOrThrow();
  }

  void Step(int64_t step, double learning_rate, const Tensor& gradient) {
    std::vector<Tensor> operands = variables_;
    operands.push_back(Tensor::Scalar(static_cast<float>(learning_rate)));
    if (counts_) operands.push_back(Tensor::Scalar(step));
    operands.push_back(gradient);
    std::vector<void*> in;
    for (Tensor& t : operands) in.push_back(t.raw());
    void* out = variables_[0].raw();
    const StepContext context;
    const std::shared_ptr<void> workspace =
        AllocateBuffer(kernel_->workspace_bytes());
    ThrowIfError(kernel_->Run(
        KernelContext(in.data(), &out, workspace.get(), &context)));
  }

  const Tensor& variable(size_t i) const { return variables_[i]; }

 private:
  Graph graph_;
  std::vector<Tensor> variables_;  // the parameter, then the slots
  bool counts_ = false;
  KernelPtr kernel_;
};

void CheckOptimizer(const Golden& golden, const std::string& name,
                    DType dtype) {
  const Json about = Json::parse(golden.cases.at(name));
  auto tensor = [&](const std::string& key) {
    return golden.tensors.at(name + "/" + key);
  };
  const Tensor initial = tensor("initial").Cast(dtype);
  std::vector<Tensor> variables = {initial.Clone()};
  const std::vector<std::string> slots = about["slots"];
  for (size_t i = 0; i < slots.size(); ++i) {
    variables.push_back(Tensor::Full(
        dtype, initial.shape(),
        about["hyperparameters"].value("initial_accumulator", 0.0)));
  }
  Updater updater(about, variables);
  const Tensor gradients = tensor("gradients");
  const Tensor parameters = tensor("parameters");
  for (int64_t step = 0; step < about["steps"].get<int64_t>(); ++step) {
    auto at = [&](const Tensor& steps) {
      return steps.Rows(step, step + 1).Reshaped(initial.shape()).Clone();
    };
    updater.Step(step + 1, tensor("learning_rates").At(step),
                 at(gradients).Cast(dtype));
    const std::string what =
        fmt::format("{} step {} {}", name, step + 1, NameOf(dtype));
    // The learning rate is a float32 in either case.
    // float32 has 1 - beta2 to five digits.
    const double tolerance = dtype == DType::kFloat64 ? 1e-6 : 3e-5;
    CheckClose(what, updater.variable(0), at(parameters), tolerance);
    for (size_t i = 0; i < slots.size(); ++i) {
      CheckClose(what + " " + slots[i], updater.variable(i + 1),
                 at(tensor("slot/" + slots[i])), tolerance);
    }
  }
}

TEST_CASE("convolutions agree with PyTorch") {
  CheckFamily("convolution", 30);
}
TEST_CASE("pooling agrees with PyTorch") {
  CheckFamily("pooling", 22);
}
TEST_CASE("normalisation agrees with PyTorch") {
  CheckFamily("normalisation", 12);
}
TEST_CASE("activations and losses agree with PyTorch") {
  CheckFamily("losses", 22);
}

TEST_CASE("ten steps of every optimizer agree with PyTorch") {
  const Golden golden = Read("optimizers");
  CHECK(golden.cases.size() == 18);
  for (const auto& [name, about] : golden.cases) {
    CheckOptimizer(golden, name, DType::kFloat64);
    CheckOptimizer(golden, name, DType::kFloat32);
  }
}

}  // namespace
}  // namespace sluice
