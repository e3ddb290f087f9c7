// Elementwise programs. The fusion pass makes these nodes
// (graph/passes/fuse_elementwise.cc); it runs after gradients were taken, so
// they have none of their own.
#include <fmt/format.h>

#include <algorithm>

#include "engine/semantics/fused_program.h"
#include "graph/graph.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

// Of FusedSum the last output is a sum over leading or trailing dimensions.
Status SetSum(InferContext& c, int output) {
  const std::string& sum = c.attrs().String("sum");
  const Shape& shape = c.attrs().ShapeOf("shape");
  const Shape& result = c.attrs().ShapeOf("sum_shape");
  if (sum != "leading" && sum != "trailing") {
    return InvalidArgument(
        fmt::format("sum is '{}', wanted 'leading' or 'trailing'", sum));
  }
  if (!shape.concrete() || !result.concrete() || result.elements() == 0 ||
      shape.elements() % result.elements() != 0) {
    return InvalidArgument(fmt::format("{} cannot be summed to {}",
                                       shape.ToString(), result.ToString()));
  }
  c.SetOutput(output, result);
  return {};
}

Status FusedShape(InferContext& c) {
  const Shape& shape = c.attrs().ShapeOf("shape");
  SLUICE_ASSIGN_OR_RETURN(
      const FusedProgram program,
      ParseFusedProgram(c.attrs().String("program"), c.num_inputs()));
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Result<Shape> both = BroadcastShapes(c.input(i), shape);
    if (!both.ok() || !Compatible(*both, shape)) {
      return InvalidArgument(
          fmt::format("input {} of shape {} does not "
                      "broadcast to {}",
                      i, c.input(i).ToString(), shape.ToString()));
    }
  }
  const std::vector<int64_t>& outputs = c.attrs().Ints("outputs");
  if (outputs.empty()) return InvalidArgument("wanted an output");
  const bool sums = c.node().Is("FusedSum");
  c.SetNumOutputs(static_cast<int>(outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t value = outputs[i];
    // Only the sum may be of what is an output, too.
    const auto plain = outputs.end() - (sums ? 1 : 0);
    if (value < program.inputs || value >= program.values() ||
        program.IsBool(static_cast<int>(value)) ||
        std::count(outputs.begin(), plain, value) > 1) {
      return InvalidArgument(fmt::format(
          "output {} is value {}, wanted the result of a step, not bool, once",
          i, value));
    }
    c.SetOutput(static_cast<int>(i), shape);
  }
  return sums ? SetSum(c, static_cast<int>(outputs.size()) - 1) : Status();
}

constexpr Probe kSumProbes[] = {
    {.inputs = {{.shape = {500, 100}}, {.shape = {500, 100}}},
     .attrs = {{"program", "ReluGrad(0,1)"},
               {"outputs", Ints{2}},
               {"shape", AttrLiteral::OfShape({500, 100})},
               {"sum", "leading"},
               {"sum_shape", AttrLiteral::OfShape({1, 100})}}},
    {.inputs = {{.shape = {7, 9000}}, {.shape = {9000}}},
     .attrs = {{"program", "Mul(0,1); Tanh(2)"},
               {"outputs", Ints{2, 3}},
               {"shape", AttrLiteral::OfShape({7, 9000})},
               {"sum", "trailing"},
               {"sum_shape", AttrLiteral::OfShape({7})},
               {"sum_scale", 0.25}}},
    {.inputs = {{.shape = {3, 30000}}, {.shape = {}}},
     .attrs = {{"program", "Sub(0,1); Square(2)"},
               {"outputs", Ints{3, 3}},
               {"shape", AttrLiteral::OfShape({3, 30000})},
               {"sum", "trailing"},
               {"sum_shape", AttrLiteral::OfShape({})},
               {"sum_scale", 1e-4}}},
    {.inputs = {{.shape = {60, 3000}}, {.shape = {60, 1}}},
     .attrs = {{"program", "Mul(0,1)"},
               {"outputs", Ints{2, 2}},
               {"shape", AttrLiteral::OfShape({60, 3000})},
               {"sum", "leading"},
               {"sum_shape", AttrLiteral::OfShape({3000})}}}};

constexpr OpDef kFusedOps[] = {
    {.name = "Fused",
     .doc = "A program of elementwise functions over inputs that broadcast to "
            "`shape`; see engine/semantics/fused_program.h.",
     .made_by = MadeBy::kEngine,
     .inputs = {{.name = "inputs", .variadic = true}},
     .outputs = {{.name = "results", .variadic = true}},
     .attrs = {{"program", AttrType::kString},
               {"outputs", AttrType::kInts},  // values
               {"shape", AttrType::kShape}},
     .shape = FusedShape,
     .gradient = NotDifferentiable,
     .inplace = {0, 1, 2, 3},
     .probes = {{.inputs = {{.shape = {3, 37}}, {.shape = {37}}, {.shape = {}}},
                 .attrs = {{"program", "Mul(0,1); Add(3,2); Relu(4)"},
                           {"outputs", Ints{5}},
                           {"shape", AttrLiteral::OfShape({3, 37})}}},
                {.inputs = {{.shape = {300, 1}}, {.shape = {300, 100}}},
                 .attrs = {{"program",
                            "Greater(0,1); LogicalNot(2); Select(3,0,1); "
                            "LeakyRelu<0.25>(4); Sub(4,1); Exp(6)"},
                           {"outputs", Ints{7, 5}},
                           {"shape", AttrLiteral::OfShape({300, 100})}}},
                {.inputs = {{.shape = {37}}, {.shape = {37}}},
                 .attrs = {{"program", "Sub(0,1); Exp(2); Mul(3,1)"},
                           {"outputs", Ints{4}},
                           {"shape", AttrLiteral::OfShape({37})}}},
                {.inputs = {{.shape = {}},
                            {.shape = {2, 1, 3}},
                            {.shape = {4, 1}}},
                 .attrs = {{"program", "Exp(0); Mul(3,1); Sub(2,4); Mul(4,5)"},
                           {"outputs", Ints{4, 6}},
                           {"shape", AttrLiteral::OfShape({2, 4, 3})}}}}},
    {.name = "FusedSum",
     .doc = "Fused, but the last output is summed over the leading or trailing "
            "dimensions and multiplied by sum_scale.",
     .made_by = MadeBy::kEngine,
     .inputs = {{.name = "inputs", .variadic = true}},
     .outputs = {{.name = "results", .variadic = true}},
     .attrs = {{"program", AttrType::kString},
               {"outputs", AttrType::kInts},
               {"shape", AttrType::kShape},
               {"sum", AttrType::kString},
               {"sum_shape", AttrType::kShape},
               {"sum_scale", 1.0}},
     .shape = FusedShape,
     .gradient = NotDifferentiable,
     .probes = {kSumProbes[0], kSumProbes[1], kSumProbes[2], kSumProbes[3]}},
};

}  // namespace

std::span<const OpDef> FusedOps() {
  return kFusedOps;
}

}  // namespace sluice
