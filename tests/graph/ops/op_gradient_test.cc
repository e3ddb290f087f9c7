// Walks the table of ops and compares gradients, and gradients of gradients,
// with central differences in float64 on the ops' probes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "graph/autograd.h"
#include "graph/compile/evaluate.h"
#include "graph/ops/control.h"
#include "graph/ops/elementwise.h"
#include "tests/support/op_probe.h"

namespace sluice::testing {
namespace {

constexpr double kStep = 1e-5;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

using Values = std::map<Output, Tensor>;

Tensor RandomLike(const TensorType& type, std::mt19937_64& random) {
  return ProbeValue({}, type.shape, type.dtype, random);
}

// Of float64 tensors.
double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) sum += a.At(i) * b.At(i);
  return sum;
}

Tensor ValueOf(const Output& output, const Values& given) {
  Result<Tensor> value = Evaluate(output, given);
  if (!value.ok()) throw Error(value.status());
  return *value;
}

// sum_k <weights[k], values of outputs[k]>.
double Projection(const Outputs& outputs, const std::vector<Tensor>& weights,
                  const Values& given) {
  double sum = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    sum += Dot(ValueOf(outputs[k], given), weights[k]);
  }
  return sum;
}

// The projection's derivative along `direction` by central differences.
double Slope(const Outputs& outputs, const std::vector<Tensor>& weights,
             const Values& given, const Values& direction) {
  double ends[2];
  for (int side = 0; side < 2; ++side) {
    Values moved = given;
    for (const auto& [x, d] : direction) {
      Tensor& value = moved[x] = given.at(x).Clone();
      for (int64_t i = 0; i < value.elements(); ++i) {
        value.data<double>()[i] += (side == 0 ? -kStep : kStep) * d.At(i);
      }
    }
    ends[side] = Projection(outputs, weights, moved);
  }
  return (ends[1] - ends[0]) / (2 * kStep);
}

Outputs Valid(const Outputs& outputs) {
  Outputs valid;
  for (const Output& o : outputs) {
    if (o.valid()) valid.push_back(o);
  }
  return valid;
}

std::vector<Tensor> RandomWeights(const Outputs& outputs,
                                  std::mt19937_64& random) {
  std::vector<Tensor> weights;
  for (const Output& o : outputs) {
    weights.push_back(RandomLike(o.type(), random));
  }
  return weights;
}

// One element of one input at a time.
void CheckElements(const Outputs& ys, const std::vector<Tensor>& seeds,
                   const Outputs& xs, const Outputs& gradients,
                   const Values& given, const std::string& where,
                   Faults& faults) {
  for (size_t k = 0; k < xs.size(); ++k) {
    const Output& x = xs[k];
    Tensor gradient = Tensor::Zeros(DType::kFloat64, x.shape());
    if (gradients[k].valid()) gradient = ValueOf(gradients[k], given);
    if (gradient.shape() != x.shape()) {
      faults.Add(fmt::format("{}: the gradient of {} has shape {}", where,
                             x.type().ToString(), gradient.shape().ToString()));
      continue;
    }
    Tensor unit = Tensor::Zeros(DType::kFloat64, x.shape());
    for (int64_t i = 0; i < gradient.elements(); ++i) {
      unit.data<double>()[i] = 1;
      const double wanted = Slope(ys, seeds, given, {{x, unit}});
      unit.data<double>()[i] = 0;
      const double got = gradient.At(i);
      if (!(std::abs(got - wanted) <= 1e-6 * (1 + std::abs(wanted)))) {
        faults.Add(
            fmt::format("{}: gradient of input {}[{}] is {}, "
                        "differences give {}",
                        where, k, i, got, wanted));
        break;
      }
    }
  }
}

// Gradients of the gradients, along random directions.
void CheckSecond(const Outputs& dys, const Outputs& xs,
                 const Outputs& gradients, const Values& given,
                 std::mt19937_64& random, const std::string& where,
                 Faults& faults) {
  const Outputs first = Valid(gradients);
  if (first.empty()) return;
  Graph& graph = first[0].graph();
  const std::vector<Tensor> weights = RandomWeights(first, random);
  Outputs seeds;
  for (const Tensor& w : weights) seeds.push_back(graph.Constant(w));
  Outputs variables = xs;
  variables.insert(variables.end(), dys.begin(), dys.end());
  const Outputs second = Gradients(first, variables, seeds);
  std::vector<Tensor> values;
  for (const Output& s : second) {
    values.push_back(s.valid() ? ValueOf(s, given) : Tensor());
  }
  for (int trial = 0; trial < 3; ++trial) {
    Values direction;
    double got = 0;
    for (size_t k = 0; k < variables.size(); ++k) {
      const Tensor d = RandomLike(variables[k].type(), random);
      direction[variables[k]] = d;
      if (second[k].valid()) got += Dot(values[k], d);
    }
    const double wanted = Slope(first, weights, given, direction);
    if (!(std::abs(got - wanted) <= 1e-5 * (1 + std::abs(wanted)))) {
      faults.Add(
          fmt::format("{}: second derivative along a direction is {}, "
                      "differences give {}",
                      where, got, wanted));
      return;
    }
  }
}

void CheckProbe(const OpDef& op, const Probe& probe, const std::string& where,
                Faults& faults) {
  const ProbeCase c = MakeProbeCase(op, probe, WidestBinding(op));
  std::mt19937_64 random(7);
  Values given = c.Given();
  Outputs xs, ys, dys;
  for (const Output& x : c.node->inputs()) {
    if (x.dtype() == DType::kFloat64) xs.push_back(x);
  }
  std::vector<Tensor> seeds;
  for (int i = 0; i < c.node->num_outputs(); ++i) {
    const Output y = c.node->output(i);
    if (y.dtype() != DType::kFloat64) continue;
    ys.push_back(y);
    seeds.push_back(RandomLike(y.type(), random));
    dys.push_back(
        c.graph->Placeholder(fmt::format("dy{}", i), y.dtype(), y.shape()));
    given[dys.back()] = seeds.back();
  }
  if (xs.empty() || ys.empty()) return;
  const Outputs gradients = Gradients(ys, xs, dys);
  CheckElements(ys, seeds, xs, gradients, given, where, faults);
  if (faults.empty()) {
    CheckSecond(dys, xs, gradients, given, random, where, faults);
  }
}

Faults FaultsOf(const OpDef& op) {
  Faults faults;
  for (int p = 0; p < op.probes.size(); ++p) {
    const std::string where = fmt::format("probe {}", p);
    try {
      CheckProbe(op, op.probes[p], where, faults);
    } catch (const Error& error) {
      faults.Add(where + ": " + error.what());
    }
  }
  return faults;
}

TEST_CASE("gradients agree with finite differences") {
  for (const OpDef* op : OpTable::Global().All()) {
    const std::string name(op->name);
    if (name.starts_with("Faulty")) continue;
    if (op->gradient == NotDifferentiable || op->gradient == nullptr) continue;
    const Faults faults = FaultsOf(*op);
    CHECK_MESSAGE(faults.empty(), name << ":" << faults.ToString());
  }
}

// --- Kinks and ties ----------------------------------------------------------

// Where a function has no slope the record says which one it has. These are
// PyTorch's.
struct Kink {
  const char* op;
  std::vector<std::vector<double>> inputs;
  std::vector<std::vector<double>> slopes;  // for a gradient of 1
  Attributes attrs = {};
};

const std::vector<Kink>& Kinks() {
  static const std::vector<Kink> kinks = {
      {"Abs", {{0}}, {{0}}},
      {"Relu", {{0}}, {{0}}},
      {"Relu6", {{0, 6}}, {{0, 0}}},
      {"LeakyRelu", {{0}}, {{0.25}}, {{"alpha", 0.25}}},
      {"Elu", {{0}}, {{0.25}}, {{"alpha", 0.25}}},
      {"Selu", {{0}}, {{1.0507009873554805 * 1.6732632423543772}}},
      {"Clip", {{-1, 2, 3}}, {{1, 1, 0}}, {{"lo", -1.0}, {"hi", 2.0}}},
      {"Clip", {{1, 2}}, {{1, 0}}, {{"lo", 1.0}, {"hi", 1.0}}},
      {"Maximum", {{1, 2, 3}, {1, 3, 2}}, {{0.5, 0, 1}, {0.5, 1, 0}}},
      {"Minimum", {{1, 2, 3}, {1, 3, 2}}, {{0.5, 1, 0}, {0.5, 0, 1}}},
      {"Maximum", {{kInfinity}, {kInfinity}}, {{0.5}, {0.5}}},
      {"Minimum", {{-kInfinity}, {-kInfinity}}, {{0.5}, {0.5}}},
      {"Maximum", {{kNotANumber}, {1}}, {{1}, {1}}},
      {"Minimum", {{1}, {kNotANumber}}, {{1}, {1}}},
      {"Max", {{3, 1, 3, 3}}, {{1. / 3, 0, 1. / 3, 1. / 3}}},
      {"Min", {{1, 1, 4}}, {{0.5, 0.5, 0}}},
      {"TopK", {{2, 3, 3}}, {{0, 1, 0}}, {{"k", 1}}},  // the first
  };
  return kinks;
}

TEST_CASE("at kinks and ties gradients are what the records say") {
  for (const Kink& kink : Kinks()) {
    CAPTURE(std::string(kink.op));
    Graph graph;
    NodeRequest request{kink.op, {}, kink.attrs};
    Outputs xs;
    for (const std::vector<double>& x : kink.inputs) {
      xs.push_back(graph.Constant(Tensor::Vector<double>(x)));
      request.inputs.emplace_back(xs.back());
    }
    const Output y = graph.Add(std::move(request)).output(0);
    const Outputs dx = Gradients({y}, xs);
    for (size_t i = 0; i < xs.size(); ++i) {
      const Tensor got = ValueOf(dx[i], {});
      for (size_t j = 0; j < kink.slopes[i].size(); ++j) {
        CHECK(got.At(j) == doctest::Approx(kink.slopes[i][j]));
      }
    }
  }
}

// --- The walk finds faults ---------------------------------------------------

// An op y = x^3 with the given gradient.
std::string FaultsOfCube(const char* name, GradientFn gradient) {
  const OpDef op = {.name = name,
                    .doc = "Made wrong on purpose.",
                    .inputs = {{"x"}},
                    .gradient = gradient,
                    .probes = {{.inputs = {{.shape = {5}}}}}};
  OpTable::Global().Register(op);
  KernelTable::Global().Register(
      {.op = name, .make = [](const KernelSpec&) -> Result<KernelPtr> {
         return KernelOf([](const KernelContext& c) {
           const double* x = c.input<double>(0);
           for (int i = 0; i < 5; ++i) {
             c.output<double>(0)[i] = x[i] * x[i] * x[i];
           }
         });
       }});
  return FaultsOf(op).ToString();
}

TEST_CASE("a right gradient has no fault") {
  CHECK(FaultsOfCube("FaultyNot", [](const Node& node, const Outputs& dy) {
          return Outputs{dy[0] * Square(node.input(0)) * 3};
        }) == "");
}

TEST_CASE("the walk finds a wrong gradient") {
  const std::string faults =
      FaultsOfCube("FaultyFirst", [](const Node& node, const Outputs& dy) {
        return Outputs{dy[0] * Square(node.input(0)) * 3.001};
      });
  CHECK(faults.find("gradient of input 0") != faults.npos);
}

TEST_CASE("the walk finds a wrong gradient of the gradient") {
  const std::string faults =
      FaultsOfCube("FaultySecond", [](const Node& node, const Outputs& dy) {
        return Outputs{dy[0] * StopGradient(Square(node.input(0))) * 3};
      });
  CHECK(faults.find("second derivative") != faults.npos);
}

TEST_CASE("the walk finds a gradient that is left out") {
  const std::string faults = FaultsOfCube(
      "FaultyNone",
      [](const Node&, const Outputs&) { return Outputs{Output()}; });
  CHECK(faults.find("gradient of input 0") != faults.npos);
}

}  // namespace
}  // namespace sluice::testing
