// Optimizer steps: every kernel, over arrays long enough to be cut into pieces,
// against the formulas in double, and the builders through a session. Ten steps
// against PyTorch's values are in golden_test.cc.
#include "graph/ops/optimizer.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <random>

#include "engine/threads.h"
#include "graph/compile/evaluate.h"
#include "graph/session/session.h"
#include "tests/support/optimizer_formulas.h"

namespace sluice {
namespace {

namespace formulas = testing::formulas;
using formulas::Element;
using formulas::kRate;

struct Rule {
  const char* op;
  Attributes attrs;
  int slots;
  bool counts_steps;
  formulas::Formula formula;
};

std::vector<Rule> Rules() {
  const Attributes adam_attrs = {
      {"beta1", 0.75}, {"beta2", 0.875}, {"epsilon", 0.5}};
  Attributes adamw_attrs = adam_attrs;
  adamw_attrs.Set("weight_decay", 0.25);
  return {
      {"ApplySgd", {}, 0, false, formulas::Sgd},
      {"ApplyMomentum",
       {{"momentum", 0.75}},
       1,
       false,
       formulas::Momentum(false)},
      {"ApplyMomentum",
       {{"momentum", 0.75}, {"nesterov", true}},
       1,
       false,
       formulas::Momentum(true)},
      {"ApplyRmsProp",
       {{"decay", 0.75}, {"epsilon", 0.5}},
       1,
       false,
       formulas::RmsProp},
      {"ApplyRmsPropMomentum",
       {{"decay", 0.75}, {"momentum", 0.5}, {"epsilon", 0.5}},
       2,
       false,
       formulas::RmsPropMomentum},
      {"ApplyAdagrad", {{"epsilon", 0.5}}, 1, false, formulas::Adagrad},
      {"ApplyAdam", adam_attrs, 2, true, formulas::Adam(0)},
      {"ApplyAdamW", adamw_attrs, 2, true, formulas::Adam(0.25)},
  };
}

Tensor Noise(DType dtype, int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Tensor t(DType::kFloat64, {n});
  for (double& v : t.values<double>()) v = normal(random);
  return t.Cast(dtype);
}

// The node of a rule on n elements.
const Node& AddRule(Graph& graph, const Rule& rule, DType dtype, int64_t n) {
  std::vector<Operand> inputs;
  const auto add = [&](DType type, const Shape& shape) {
    const auto name = fmt::format("input{}", inputs.size());
    inputs.emplace_back(graph.Placeholder(name, type, shape));
  };
  for (int i = 0; i <= rule.slots; ++i) add(dtype, {n});
  add(DType::kFloat32, {});
  if (rule.counts_steps) add(DType::kInt64, {});
  add(dtype, {n});
  return graph.Add({rule.op, inputs, rule.attrs});
}

// The variables after three steps from noise and zero slots.
std::vector<Tensor> Run(const Rule& rule, const KernelSpec& spec,
                        const KernelDef& def) {
  const auto [dtype, shape] = spec.inputs[0];
  std::vector<Tensor> variables = {Noise(dtype, shape[0], 1)};
  for (int i = 0; i < rule.slots; ++i) {
    variables.push_back(Tensor::Zeros(dtype, shape));
  }
  const KernelPtr kernel = def.make(spec).ValueOrThrow();
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<Tensor> operands = variables;
    operands.push_back(Tensor::Scalar(static_cast<float>(kRate)));
    if (rule.counts_steps) operands.push_back(Tensor::Scalar(step));
    operands.push_back(Noise(dtype, shape[0], 1 + step));
    std::vector<void*> in;
    for (Tensor& t : operands) in.push_back(t.raw());
    void* out = variables[0].raw();
    const StepContext context;
    ThrowIfError(
        kernel->Run(KernelContext(in.data(), &out, nullptr, &context)));
  }
  return variables;
}

std::vector<Tensor> Expected(const Rule& rule, DType dtype, int64_t n) {
  const Tensor p = Noise(dtype, n, 1);
  const Tensor g[] = {Noise(dtype, n, 2), Noise(dtype, n, 3),
                      Noise(dtype, n, 4)};
  std::vector<Tensor> after(3, Tensor::Zeros(DType::kFloat64, {n}));
  for (Tensor& t : after) t = t.Clone();
  for (int64_t i = 0; i < n; ++i) {
    Element e{p.At(i), 0, 0, 0, 0};
    for (size_t step = 0; step < 3; ++step) {
      e.number = static_cast<double>(step + 1);
      e.g = g[step].At(i);
      rule.formula(e);
    }
    after[0].data<double>()[i] = e.p;
    after[1].data<double>()[i] = e.a;
    after[2].data<double>()[i] = e.b;
  }
  return after;
}

TEST_CASE("Every kernel follows the formulas") {
  for (const Rule& rule : Rules()) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (int64_t n : {1, 7, 40'003}) {
        Graph graph;
        const Node& node = AddRule(graph, rule, dtype, n);
        const KernelSpec spec = SpecOf(node, false);
        const auto kernels =
            KernelTable::Global().FindAll(spec, DeviceType::kCpu);
        CHECK(kernels.size() == (dtype == DType::kFloat32 ? 2 : 1));
        const std::vector<Tensor> wanted = Expected(rule, dtype, n);
        for (const KernelDef* kernel : kernels) {
          CAPTURE(rule.op);
          CAPTURE(kernel->provider);
          const std::vector<Tensor> got = Run(rule, spec, *kernel);
          double worst = 0;
          for (size_t v = 0; v < got.size(); ++v) {
            for (int64_t i = 0; i < n; ++i) {
              const double want = wanted[v].At(i);
              worst = std::max(
                  worst, std::abs(got[v].At(i) - want) / (1 + std::abs(want)));
            }
          }
          CHECK(worst < (dtype == DType::kFloat32 ? 2e-6 : 1e-14));

          SetComputeThreads(3);
          const std::vector<Tensor> again = Run(rule, spec, *kernel);
          SetComputeThreads(0);
          for (size_t v = 0; v < got.size(); ++v) {
            CHECK(again[v].BitEqual(got[v]));
          }
        }
      }
    }
  }
}

// The variables and slots after an update by a list kernel, of a variable with
// gradient decay and one without. Premade gradients are of the variables' dtype
// and scaled already.
std::vector<Tensor> RunList(const Rule& rule, const KernelDef& def,
                            KernelSpec spec, float scale, bool premade) {
  std::vector<Tensor> operands;
  const size_t tensors = 2 * (2 + rule.slots);
  const DType dtype = spec.inputs[0].dtype;
  for (size_t i = 0; i < tensors; ++i) {
    TensorType& type = spec.inputs[i];
    Tensor t = Noise(type.dtype, type.shape[0], static_cast<unsigned>(i + 1));
    const bool slot = i >= 2 && i < tensors - 2;
    const bool made = premade && i >= tensors - 2;
    if (made) {
      type.dtype = dtype;
      t = t.Cast(dtype);
    }
    DispatchFloating(t.dtype(), [&]<typename T>(TypeTag<T>) {
      if constexpr (std::is_floating_point_v<T>) {
        for (T& x : t.values<T>()) {
          if (slot) x = std::abs(x);
          if (made) x *= static_cast<T>(scale);
        }
      }
    });
    operands.push_back(std::move(t));
  }
  operands.push_back(Tensor::Scalar(static_cast<float>(kRate)));
  if (rule.counts_steps) operands.push_back(Tensor::Scalar<int64_t>(3));
  operands.push_back(Tensor::Scalar(premade ? 1.0f : scale));
  operands.push_back(Tensor::Scalar(true));
  std::vector<void*> in;
  for (Tensor& t : operands) in.push_back(t.raw());
  void* out = operands[0].raw();
  const StepContext context;
  const KernelPtr kernel = def.make(spec).ValueOrThrow();
  ThrowIfError(kernel->Run(KernelContext(in.data(), &out, nullptr, &context)));
  operands.resize(tensors - 2);
  return operands;
}

// Of two variables; the first one's gradient has a dtype of its own.
KernelSpec ListSpec(const Rule& rule, DType dtype, DType first_gradient) {
  KernelSpec spec{.op = std::string(rule.op) + "List", .attrs = rule.attrs};
  spec.attrs.Set("variables", 2);
  spec.attrs.Set("gradient_decay", 0.3);
  spec.attrs.Set("decayed", 1);
  for (int kind = 0; kind < rule.slots + 2; ++kind) {
    const bool gradient = kind == rule.slots + 1;
    spec.inputs.push_back({gradient ? first_gradient : dtype, {5000}});
    spec.inputs.push_back({dtype, {40'003}});
  }
  spec.inputs.push_back({DType::kFloat32, {}});
  if (rule.counts_steps) spec.inputs.push_back({DType::kInt64, {}});
  spec.inputs.push_back({DType::kFloat32, {}});
  spec.inputs.push_back({DType::kBool, {}});
  spec.outputs = {spec.inputs[0]};
  return spec;
}

TEST_CASE("a list scales and widens gradients as nodes before it would") {
  for (const Rule& rule : Rules()) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (DType gradient : {dtype, DType::kFloat16, DType::kBFloat16}) {
        const KernelSpec spec = ListSpec(rule, dtype, gradient);
        const auto kernels =
            KernelTable::Global().FindAll(spec, DeviceType::kCpu);
        CHECK(kernels.size() == (dtype == DType::kFloat32 ? 2 : 1));
        for (const KernelDef* kernel : kernels) {
          CAPTURE(rule.op);
          CAPTURE(kernel->provider);
          const auto wanted = RunList(rule, *kernel, spec, 0.3f, true);
          const auto got = RunList(rule, *kernel, spec, 0.3f, false);
          const auto other = RunList(rule, *kernel, spec, 0.5f, false);
          const auto plain = RunList(rule, *kernel, spec, 1, true);
          const auto widened = RunList(rule, *kernel, spec, 1, false);
          for (size_t i = 0; i < got.size(); ++i) {
            CHECK(got[i].BitEqual(wanted[i]));
            CHECK_FALSE(other[i].BitEqual(wanted[i]));
            CHECK(widened[i].BitEqual(plain[i]));
          }
        }
      }
    }
  }
}

TEST_CASE("an update that is not to take place leaves every bit") {
  for (const Rule& rule : Rules()) {
    CAPTURE(rule.op);
    Graph graph;
    std::vector<Operand> inputs;
    std::vector<Output> variables;
    for (int i = 0; i <= rule.slots; ++i) {
      variables.push_back(graph.Variable("v" + std::to_string(i),
                                         CopyOf(Noise(DType::kFloat32, 7, i))));
      inputs.emplace_back(variables.back());
    }
    inputs.emplace_back(graph.Constant(0.5, DType::kFloat32));
    if (rule.counts_steps)
      inputs.emplace_back(graph.Constant(1, DType::kInt64));
    inputs.emplace_back(
        graph.Constant(Tensor::Full(DType::kFloat32, {7}, std::nan(""))));
    const Output apply = graph.Placeholder("apply", DType::kBool, {});
    inputs.emplace_back(apply);
    const Node& node = graph.Add({rule.op, inputs, rule.attrs});
    Session session(graph);
    session.Initialize();
    session.Run({{apply, Tensor::Scalar(false)}}, node.output(0));
    for (int i = 0; i <= rule.slots; ++i) {
      CHECK(session.Read(variables[i]).BitEqual(Noise(DType::kFloat32, 7, i)));
    }
    session.Run({{apply, Tensor::Scalar(true)}}, node.output(0));
    CHECK(std::isnan(session.Read(variables[0]).At(3)));
  }
}

TEST_CASE("Builders update variables in a session") {
  Graph graph;
  const auto variable = [&](const std::string& name, double value) {
    return graph.Variable(name, Filled(value, {2}));
  };
  const Output g = graph.Placeholder("g", DType::kFloat32, {2});
  const Output step = graph.Placeholder("step", DType::kInt64, {});
  const Output rate = graph.Constant(0.5, DType::kFloat32);
  struct Case {
    Output updated;
    double wanted;  // after one step from 1 with gradient 2
  };
  const Case cases[] = {
      {ApplySgd(variable("sgd", 1), 0.5, g), 0},
      {ApplySgd(variable("sgd_tensor", 1), rate, g), 0},
      {ApplyMomentum(variable("momentum", 1), variable("momentum/v", 4), 0.5, g,
                     {.momentum = 0.5}),
       1 - 0.5 * 4},
      {ApplyMomentum(variable("nesterov", 1), variable("nesterov/v", 4), 0.5, g,
                     {.momentum = 0.5, .nesterov = true}),
       1 - 0.5 * (2 + 0.5 * 4)},
      {ApplyRmsProp(variable("rms", 1), variable("rms/s", 4), 0.5, g,
                    {.decay = 0.5, .epsilon = 0}),
       1 - 0.5 * 2 / 2},
      {ApplyRmsPropMomentum(variable("rmsm", 1), variable("rmsm/s", 4),
                            variable("rmsm/v", 2), 0.5, g, 0.5,
                            {.decay = 0.5, .epsilon = 0}),
       1 - 0.5 * (0.5 * 2 + 1)},
      {ApplyAdagrad(variable("adagrad", 1), variable("adagrad/a", 0), 0.5, g,
                    {.epsilon = 2}),
       1 - 0.5 * 2 / 4},
      {ApplyAdam(variable("adam", 1), variable("adam/m", 0),
                 variable("adam/v", 0), 0.5, step, g, {.epsilon = 0}),
       0.5},
      {ApplyAdamW(variable("adamw", 1), variable("adamw/m", 0),
                  variable("adamw/v", 0), 0.5, step, g,
                  {.epsilon = 0, .weight_decay = 0.5}),
       0.75 - 0.5},
  };
  Session session(graph);
  session.Initialize();
  for (const Case& c : cases) {
    const Tensor value =
        session.Run({{g, Tensor::Full(DType::kFloat32, {2}, 2)},
                     {step, Tensor::Scalar<int64_t>(1)}},
                    c.updated);
    CAPTURE(c.updated.name());
    CHECK(value.At(0) == doctest::Approx(c.wanted).epsilon(1e-5));
    CHECK(value.At(1) == value.At(0));
  }
}

TEST_CASE("Operands of the wrong shape or dtype are named") {
  Graph graph;
  const Output v = graph.Variable("v", Zeros({2, 3}));
  const Output g = graph.Placeholder("g", DType::kFloat32, {3, 2});
  const auto complaint = [](const std::function<void()>& fn) -> std::string {
    try {
      fn();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(complaint([&] {
          ApplySgd(v, 0.1, g);
        }).find("'gradient' has shape [3,2], wanted [2,3]") !=
        std::string::npos);
  CHECK(complaint([&] {
          ApplySgd(v, v, v);
        }).find("'learning_rate' has shape [2,3], wanted []") !=
        std::string::npos);
  const Output rate = graph.Constant(0.1, DType::kFloat64);
  CHECK(complaint([&] {
          ApplySgd(v, rate, v);
        }).find("'learning_rate' is float64, wanted float32") !=
        std::string::npos);
  const Output slot = graph.Variable("slot", Zeros({6}));
  CHECK(complaint([&] {
          ApplyMomentum(v, slot, 0.1, v);
        }).find("'velocity' has shape [6]") != std::string::npos);
}

}  // namespace
}  // namespace sluice
