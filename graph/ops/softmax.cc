#include "graph/ops/softmax.h"

#include "graph/ops/elementwise.h"
#include "graph/ops/reduce.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

Status AxisShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(
      NormalizeAxis(c.attrs().Int("axis"), c.input(0).rank()).status());
  c.SetOutput(0, c.input(0));
  return {};
}

Output OverAxis(const Node& node, const Output& x) {
  return Sum(x, {node.attrs().Int("axis")}, /*keep_dims=*/true);
}

constexpr FixedList<Probe, 6> kProbes = {
    {.inputs = {{.shape = {3, 5}, .lo = -3, .hi = 3}}},
    {.inputs = {{.shape = {2, 19}, .lo = -3, .hi = 3}}},
    // Far from 0, where exp overflows and float32 has a few digits left.
    {.inputs = {{.shape = {2, 19}, .lo = 997, .hi = 1003}}},
    {.inputs = {{.shape = {2, 4, 3}}}, .attrs = {{"axis", 1}}}};

constexpr OpDef kSoftmaxOps[] = {
    {.name = "Softmax",
     .doc = "exp(x) / sum(exp(x)) along an axis.",
     .inputs = {{"x"}},
     .attrs = {{"axis", -1}},
     .shape = AxisShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       const Output y = node.output(0);
       return {y * (dy[0] - OverAxis(node, dy[0] * y))};
     },
     .inplace = {0},
     .probes = kProbes},
    {.name = "LogSoftmax",
     .doc = "x - log(sum(exp(x))) along an axis.",
     .inputs = {{"x"}},
     .attrs = {{"axis", -1}},
     .shape = AxisShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {dy[0] - Exp(node.output(0)) * OverAxis(node, dy[0])};
     },
     .inplace = {0},
     .probes = kProbes},
};

}  // namespace

std::span<const OpDef> SoftmaxOps() {
  return kSoftmaxOps;
}

Output Softmax(Operand x, int64_t axis) {
  return x.graph().Add({"Softmax", {x}, {{"axis", axis}}}).output(0);
}
Output LogSoftmax(Operand x, int64_t axis) {
  return x.graph().Add({"LogSoftmax", {x}, {{"axis", axis}}}).output(0);
}

}  // namespace sluice
