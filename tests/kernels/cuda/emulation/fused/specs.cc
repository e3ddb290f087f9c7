#include "tests/kernels/cuda/emulation/fused/specs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <string>

#include "engine/semantics/fused_program.h"
#include "engine/semantics/scalar.h"
#include "graph/compile/evaluate.h"
#include "tests/support/op_probe.h"

namespace sluice::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                             DType::kBFloat16};

// Those of FusedSum are large: one dtype each.
void AddProbes(std::vector<KernelSpec>* specs) {
  for (const char* name : {"Fused", "FusedSum"}) {
    const OpDef& op = OpTable::Global().Get(name);
    for (int p = 0; p < op.probes.size(); ++p) {
      for (int d = 0; d < 4; ++d) {
        if (op.name == std::string_view("FusedSum") && d != p % 4) continue;
        const ProbeCase c =
            MakeProbeCase(op, op.probes[p], {{"T", kDTypes[d]}});
        specs->push_back(SpecOf(*c.node, /*deterministic=*/false));
      }
    }
  }
}

KernelSpec SpecOf(DType dtype, const Shape& shape,
                  const std::vector<Shape>& inputs, std::string program,
                  const std::vector<int64_t>& outputs) {
  KernelSpec spec{.op = "Fused", .node = "fused", .origin = "fused"};
  for (const Shape& input : inputs) spec.inputs.push_back({dtype, input});
  spec.outputs.assign(outputs.size(), {dtype, shape});
  spec.attrs = {
      {"program", std::move(program)}, {"outputs", outputs}, {"shape", shape}};
  return spec;
}

// Programs of six functions each, all results stored; predicates choose.
void AddFunctions(std::vector<KernelSpec>* specs) {
  std::vector<std::string> steps;
  std::vector<std::string> names;
  [&]<typename... A, typename... B, typename... C, typename... D>(
      scalar::OpList<A...>, scalar::OpList<B...>, scalar::OpList<C...>,
      scalar::OpList<D...>) {
    (names.emplace_back(A::kName), ...);
    (names.emplace_back(B::kName), ...);
    (names.emplace_back(C::kName), ...);
    (names.emplace_back(D::kName), ...);
  }(scalar::UnaryOps(), scalar::UnaryPredicates(), scalar::BinaryOps(),
    scalar::BinaryPredicates());
  constexpr size_t kEach = 6;
  for (size_t first = 0; first < names.size(); first += kEach) {
    // Values 2 and 3 are bool.
    std::string program = "Less(0,1); IsNan(1)";
    int values = 4;
    std::vector<int64_t> outputs;
    for (size_t i = first; i < std::min(first + kEach, names.size()); ++i) {
      const FusedFunction& f = *FindFusedFunction(names[i]);
      const bool clips = names[i] == "Clip";
      const bool leaks =
          names[i].starts_with("LeakyRelu") || names[i].starts_with("Elu");
      const int operand = f.takes_bool() ? 2 : 0;
      program += fmt::format(
          "; {}{}({}{})", names[i],
          clips   ? "<-0.5,inf>"
          : leaks ? "<0.25>"
                  : "",
          operand,
          f.arity == 2 ? fmt::format(",{}", operand + 1) : std::string());
      ++values;
      if (f.gives_bool) {
        program += fmt::format("; Select({},0,1)", values - 1);
        ++values;
      }
      outputs.push_back(values - 1);
    }
    const size_t k = specs->size();
    // All dtypes take turns.
    specs->push_back(
        SpecOf(kDTypes[k % 4], {3, 50}, {{3, 50}, {50}}, program, outputs));
  }
}

// Sizes that leave packs, warps and blocks partly filled, and segments.
const Shape kShapes[] = {{37},      {1},        {7, 9},     {64, 33},
                         {5, 64},   {3, 41, 2}, {2, 6, 16}, {4, 3, 5, 8},
                         {4000, 3}, {2, 20000}, {700, 40},  {1, 5, 1, 24}};

// One whose results stay moderate.
std::string RandomStep(std::mt19937& random, int values) {
  static const char* const kFunctions[] = {
      "Tanh",     "Sigmoid",         "Sin",        "Relu", "Neg",
      "Gelu",     "LeakyRelu<0.25>", "Erf",        "Silu", "Clip<-0.5,0.75>",
      "Maximum",  "Minimum",         "Mul",        "Add",  "Sub",
      "ReluGrad", "TanhGrad",        "SigmoidGrad"};
  const std::string f = kFunctions[random() % std::size(kFunctions)];
  // Mostly of late values.
  const auto value = [&] {
    const auto back = random() % 3 == 0 ? values : std::min(values, 4);
    return values - 1 -
           static_cast<int>(random() % static_cast<unsigned>(back));
  };
  const int arity = FindFusedFunction(f.substr(0, f.find('<')))->arity;
  const int a = value();
  return arity == 1 ? fmt::format("{}({})", f, a)
                    : fmt::format("{}({},{})", f, a, value());
}

Shape RandomOperand(std::mt19937& random, const Shape& shape) {
  std::vector<int64_t> dims;
  const bool whole = random() % 2 == 0;
  for (int64_t d : shape.dims()) {
    dims.push_back(whole || random() % 2 == 0 ? d : 1);
  }
  while (!dims.empty() && dims.front() == 1 && random() % 2 == 0) {
    dims.erase(dims.begin());
  }
  return Shape(dims);
}

// The last output becomes a sum over dimensions [0, split) or [split, rank).
void MakeSum(std::mt19937& random, KernelSpec* spec) {
  const Shape& shape = spec->attrs.ShapeOf("shape");
  const bool leading = random() % 2 == 0;
  const int split =
      static_cast<int>(random() % static_cast<unsigned>(shape.rank() + 1));
  std::vector<int64_t> dims;
  for (int d = 0; d < shape.rank(); ++d) {
    if ((d < split) != leading) dims.push_back(shape[d]);
  }
  spec->op = "FusedSum";
  spec->outputs.back().shape = Shape(dims);
  spec->attrs.Set("sum", leading ? "leading" : "trailing");
  spec->attrs.Set("sum_shape", Shape(dims));
  spec->attrs.Set("sum_scale", 0.125);
}

KernelSpec RandomSpec(uint32_t seed) {
  std::mt19937 random(seed);  // NOLINT: the same in every run
  const Shape& shape = kShapes[seed % std::size(kShapes)];
  const DType dtype = kDTypes[random() % 4];
  std::vector<Shape> inputs = {shape};
  for (auto more = random() % 4; more > 0; --more) {
    inputs.push_back(RandomOperand(random, shape));
  }
  const int first = static_cast<int>(inputs.size());
  const int steps = 1 + static_cast<int>(random() % 12);
  std::vector<std::string> program;
  for (int s = 0; s < steps; ++s) {
    program.push_back(RandomStep(random, first + s));
  }
  std::vector<int64_t> outputs = {first + steps - 1};
  for (int s = 0; s + 1 < steps && random() % 4 == 0; ++s) {
    outputs.insert(outputs.begin(), first + s);
  }
  KernelSpec spec =
      SpecOf(dtype, shape, inputs, fmt::format("{}", fmt::join(program, "; ")),
             outputs);
  if (random() % 2 == 0) MakeSum(random, &spec);
  return spec;
}

}  // namespace

std::vector<KernelSpec> FusedSpecs() {
  std::vector<KernelSpec> specs;
  AddProbes(&specs);
  AddFunctions(&specs);
  for (uint32_t seed = 0; seed < 36; ++seed) specs.push_back(RandomSpec(seed));
  return specs;
}

}  // namespace sluice::testing
