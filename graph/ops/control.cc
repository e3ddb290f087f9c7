#include "graph/ops/control.h"

#include "graph/ops/tables.h"
#include "graph/traversal.h"

namespace sluice {
namespace {

Status ShapeFromAttr(InferContext& c) {
  c.SetOutput(0, c.attrs().ShapeOf("shape"));
  return {};
}

// y = x.
constexpr OpDef SameOp(const char* name, const char* doc, GradientFn gradient) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"x"}},
          .types = {{"T", kAnyType}},
          .gradient = gradient,
          .half = HalfRule::kFollow,
          .probes = {{.inputs = {{.shape = {2, 3}}}}}};
}

Outputs PassOn(const Node&, const Outputs& dy) {
  return {dy[0]};
}

constexpr OpDef IdentityOp() {
  OpDef op = SameOp("Identity", "y = x.", PassOn);
  op.view = true;
  op.partial = PartialOfInputs;
  return op;
}
constexpr OpDef StopGradientOp() {
  OpDef op =
      SameOp("StopGradient", "y = x, with no gradient.", NotDifferentiable);
  op.view = true;
  return op;
}
constexpr OpDef CopyOp() {
  OpDef op = SameOp(
      "Copy", "y = x in memory of its own. Made of variables about to change.",
      PassOn);
  op.made_by = MadeBy::kEngine;
  return op;
}

// Of an edge between two parts of a step: its name, its number among those of
// the step, and the incarnations of the devices at its ends (PartitionStep).
constexpr FixedList<AttrDef, 10> kEdge = {
    {"key", AttrType::kString}, {"edge", -1}, {"sender", 0}, {"receiver", 0}};

// Both ends of such an edge, each a start and a wait: made by the partitioner.
constexpr OpDef EdgeOp(const char* name, const char* doc, OpKind kind) {
  return {.name = name,
          .doc = doc,
          .made_by = MadeBy::kEngine,
          .kind = kind,
          .inputs = {{"x"}},
          .types = {{"T", kAnyType}},
          .attrs = kEdge,
          .gradient = NotDifferentiable,
          .stateful = true};
}

// How many rows of x, with or without it, are sent or wanted.
constexpr ArgDef kCount = {.name = "count", .type = "int64", .optional = true};

Status EdgeShape(InferContext& c) {
  if (c.num_inputs() > 1 && !c.input(1).scalar()) {
    return InvalidArgument("the count is no scalar");
  }
  if (c.num_inputs() > 1 && c.input(0).rank() < 1) {
    return InvalidArgument("x has no rows to be counted");
  }
  c.SetOutput(0, c.input(0));
  return {};
}

constexpr OpDef SendStartOp() {
  OpDef op = EdgeOp("SendStart",
                    "Begins to hand x, or its first `count` rows, to the wait "
                    "of the same key; y is x.",
                    OpKind::kSend);
  op.inputs = {{"x"}, kCount};
  op.shape = EdgeShape;
  op.reads_counted = [](const Node& node, int input) -> bool {
    return input == 0 && node.num_inputs() > 1 &&
           CounterOf(node.input(0)) == node.input(1);
  };
  op.view = true;
  op.runs = true;
  op.wait = "SendWait";
  return op;
}
constexpr OpDef SendWaitOp() {
  OpDef op = EdgeOp("SendWait",
                    "Waits until x, which is being sent, may be overwritten.",
                    OpKind::kSend);
  op.outputs = {};
  op.sink = true;
  return op;
}
constexpr OpDef RecvStartOp() {
  OpDef op = EdgeOp(
      "RecvStart",
      "Gives room to the tensor that the SendStart of the same key sends.",
      OpKind::kReceive);
  op.inputs = {};
  op.outputs = {{"y", "dtype"}};
  op.types = {};
  op.attrs = {{"key", AttrType::kString},
              {"dtype", AttrType::kDType},
              {"shape", AttrType::kShape},
              {"edge", -1},
              {"sender", 0},
              {"receiver", 0}};
  op.shape = ShapeFromAttr;
  op.wait = "RecvWait";
  return op;
}
constexpr OpDef RecvWaitOp() {
  OpDef op =
      EdgeOp("RecvWait", "Waits until x has come; y is x.", OpKind::kReceive);
  op.view = true;
  op.runs = true;
  return op;
}

constexpr OpDef RecvRowsStartOp() {
  OpDef op = RecvStartOp();
  op.name = "RecvRowsStart";
  op.doc =
      "Gives room to as many rows as the SendStart of the same key may send.";
  op.wait = "RecvRowsWait";
  return op;
}
constexpr OpDef RecvRowsWaitOp() {
  OpDef op = RecvWaitOp();
  op.name = "RecvRowsWait";
  op.doc =
      "Waits until rows of x have come, `count` if it is given; y is x, with "
      "as "
      "many rows as the other output says.";
  op.inputs = {{"x"}, kCount};
  op.outputs = {{"y"}, {"count", "int64"}};
  op.shape = [](InferContext& c) -> Status {
    if (c.input(0).rank() < 1) return InvalidArgument("x has no rows");
    c.SetOutput(1, {});
    return EdgeShape(c);
  };
  op.counter = [](const Node& node, int output) -> Output {
    if (output != 0) return {};
    return node.num_inputs() > 1 ? node.input(1) : node.output(1);
  };
  return op;
}

constexpr OpDef kControlOps[] = {
    {.name = "Const",
     .doc = "A constant tensor.",
     .builder = "Graph::Constant",
     .kind = OpKind::kConstant,
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
     .instruction = false,
     .partial = [](const Node& node, int, Shape* elements) -> bool {
       const Tensor& value = node.attrs().TensorOf("value");
       if (value.shape().rank() > 1) return false;
       for (int64_t i = 0; i < value.elements(); ++i) {
         elements->push_back(value.IntAt(i));
       }
       return true;
     }},
    {.name = "Placeholder",
     .doc = "A value fed at each step.",
     .builder = "Graph::Placeholder",
     .kind = OpKind::kPlaceholder,
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
     .kind = OpKind::kFetch,
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
    IdentityOp(),
    StopGradientOp(),
    CopyOp(),
    SendStartOp(),
    SendWaitOp(),
    RecvStartOp(),
    RecvWaitOp(),
    RecvRowsStartOp(),
    RecvRowsWaitOp(),
};

}  // namespace

std::span<const OpDef> ControlOps() {
  return kControlOps;
}

Operation NoOp(Graph& graph, const std::vector<Operation>& after,
               const std::string& name) {
  const ControlScope scope(graph, after);
  return Operation(&graph.Add({"NoOp", {}, {}, name}));
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
