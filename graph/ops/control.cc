#include "graph/ops/control.h"

#include "graph/ops/tables.h"

namespace sluice {
namespace {

Status ShapeFromAttr(InferContext& c) {
  c.SetOutput(0, c.attrs().ShapeOf("shape"));
  return {};
}

// Of an edge between two parts of a step: its name, its number among those of
// the step, and the incarnations of the devices at its ends (PartitionStep).
constexpr FixedList<AttrDef, 10> kEdge = {
    {"key", AttrType::kString}, {"edge", -1}, {"sender", 0}, {"receiver", 0}};

constexpr OpDef kControlOps[] = {
    {.name = "Const",
     .doc = "A constant tensor.",
     .builder = "Graph::Constant",
     .outputs = {{"y", "float32"}},
     .types = {},
     .attrs = {{"value", AttrType::kTensor}},
     .shape = [](InferContext& c) -> Status {
       const Tensor& value = c.attrs().TensorOf("value");
       c.SetOutput(0, value.shape());
       c.SetType(0, value.dtype());
       return {};
     },
     .gradient = NotDifferentiable,
     .instruction = false},
    {.name = "Placeholder",
     .doc = "A value fed at each step.",
     .builder = "Graph::Placeholder",
     .outputs = {{"y", "dtype"}},
     .types = {},
     .attrs = {{"dtype", AttrType::kDType}, {"shape", AttrType::kShape}},
     .shape = ShapeFromAttr,
     .gradient = NotDifferentiable,
     .stateful = true,
     .instruction = false},
    {.name = "Fetch",
     .doc = "Copies x into the caller's buffer `index`. Made by Session.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .outputs = {},
     .types = {{"T", kAnyType}},
     .attrs = {{"index", AttrType::kInt}},
     .gradient = NotDifferentiable,
     .stateful = true,
     .sink = true},
    {.name = "NoOp",
     .doc = "Does nothing, after its control inputs.",
     .outputs = {},
     .types = {},
     .gradient = NotDifferentiable,
     .stateful = true,
     .instruction = false},
    {.name = "Identity",
     .doc = "y = x.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .gradient = [](const Node&, const Outputs& dy) -> Outputs {
       return {dy[0]};
     },
     .view = true,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3}}}}}},
    {.name = "StopGradient",
     .doc = "y = x, with no gradient.",
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .gradient = NotDifferentiable,
     .view = true,
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3}}}}}},
    {.name = "Copy",
     .doc = "y = x in memory of its own. Made of variables about to change.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .gradient = [](const Node&, const Outputs& dy) -> Outputs {
       return {dy[0]};
     },
     .half = HalfRule::kFollow,
     .probes = {{.inputs = {{.shape = {2, 3}}}}}},
    // Both ends of an edge between two parts, each a start and a wait: made by
    // the partitioner.
    {.name = "SendStart",
     .doc = "Begins to hand x to the RecvWait of the same key; y is x.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = kEdge,
     .gradient = NotDifferentiable,
     .stateful = true,
     .view = true,
     .runs = true,
     .wait = "SendWait"},
    {.name = "SendWait",
     .doc = "Waits until x, which is being sent, may be overwritten.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .outputs = {},
     .types = {{"T", kAnyType}},
     .attrs = kEdge,
     .gradient = NotDifferentiable,
     .stateful = true,
     .sink = true},
    {.name = "RecvStart",
     .doc =
         "Gives room to the tensor that the SendStart of the same key sends.",
     .made_by = MadeBy::kEngine,
     .outputs = {{"y", "dtype"}},
     .types = {},
     .attrs = {{"key", AttrType::kString},
               {"dtype", AttrType::kDType},
               {"shape", AttrType::kShape},
               {"edge", -1},
               {"sender", 0},
               {"receiver", 0}},
     .shape = ShapeFromAttr,
     .gradient = NotDifferentiable,
     .stateful = true,
     .wait = "RecvWait"},
    {.name = "RecvWait",
     .doc = "Waits until x has come; y is x.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .types = {{"T", kAnyType}},
     .attrs = kEdge,
     .gradient = NotDifferentiable,
     .stateful = true,
     .view = true,
     .runs = true},
};

}  // namespace

std::span<const OpDef> ControlOps() {
  return kControlOps;
}

Operation NoOp(Graph& graph, const std::vector<Operation>& after,
               const std::string& name) {
  Node& node = graph.Add({"NoOp", {}, {}, name});
  for (const Operation& operation : after) {
    node.AddControlInput(&operation.node());
  }
  return Operation(&node);
}

Operation Group(Graph& graph, const std::vector<Operation>& operations,
                const std::string& name) {
  return NoOp(graph, operations, name);
}

Output WithDependencies(const std::vector<Operation>& operations, Operand x) {
  ControlScope scope(x.graph(), operations);
  return Identity(x);
}

Output Identity(Operand x, const std::string& name) {
  return x.graph().Add({"Identity", {x}, {}, name}).output(0);
}

Output StopGradient(Operand x) {
  return x.graph().Add({"StopGradient", {x}}).output(0);
}

}  // namespace sluice
