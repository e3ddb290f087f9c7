#include "graph/ops/dropout.h"

#include <fmt/format.h>

#include "graph/ops/tables.h"

namespace sluice {
namespace {

Status CheckRate(InferContext& c) {
  const double rate = c.attrs().Float("rate");
  if (!(rate >= 0 && rate < 1)) {
    return InvalidArgument(
        fmt::format("the rate must lie in [0, 1), got {}", rate));
  }
  return {};
}

// With the mask given, dropout is linear and its own gradient.
Outputs MaskedGradient(const Node& node, const Output& mask, const Output& dy) {
  Outputs dx(node.num_inputs());
  dx[0] = node.graph()
              .Add({"DropoutGrad",
                    {dy, mask},
                    {{"rate", node.attrs().Float("rate")}}})
              .output(0);
  return dx;
}

constexpr OpDef kDropoutOps[] = {
    {.name = "Dropout",
     .doc = "Zeroes elements at random and scales the others; `mask` says "
            "which were kept.",
     .inputs = {{"x"}},
     .outputs = {{"y"}, {"mask", "bool"}},
     .attrs = {{"rate", AttrType::kFloat}},
     .shape = [](InferContext& c) -> Status {
       SLUICE_RETURN_IF_ERROR(CheckRate(c));
       return SameShape(c);
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       if (!dy[0].valid()) return Outputs(1);
       return MaskedGradient(node, node.output(1), dy[0]);
     },
     .stateful = true,
     .inplace = {0},
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {5, 7}}}, .attrs = {{"rate", 0.4}}}}},
    {.name = "DropoutGrad",
     .doc = "dy / (1 - rate) where the mask is set, else 0.",
     .made_by = MadeBy::kGradients,
     .inputs = {{"dy"}, {"mask", "bool"}},
     .outputs = {{"dx"}},
     .attrs = {{"rate", AttrType::kFloat}},
     .shape = [](InferContext& c) -> Status {
       SLUICE_RETURN_IF_ERROR(CheckRate(c));
       if (!Compatible(c.input(0), c.input(1))) {
         return InvalidArgument("the mask must have dy's shape");
       }
       return SameShape(c);
     },
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return MaskedGradient(node, node.input(1), dy[0]);
     },
     .inplace = {0},
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {5, 7}},
                            {.shape = {5, 7}, .values = {1, 0, 0, 1, 1}}},
                 .attrs = {{"rate", 0.4}}}}},
};

}  // namespace

std::span<const OpDef> DropoutOps() {
  return kDropoutOps;
}

Output Dropout(Operand x, double rate) {
  return x.graph().Add({"Dropout", {x}, {{"rate", rate}}}).output(0);
}

}  // namespace sluice
