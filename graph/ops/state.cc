#include "graph/ops/state.h"

#include <fmt/format.h>

#include "graph/ops/tables.h"

namespace sluice {
namespace {

// Checks that `value` fits the variable it is written to.
Status WriteShape(InferContext& c) {
  if (!Compatible(c.input(0), c.input(1))) {
    return InvalidArgument(
        fmt::format("the variable has shape {}, the value {}",
                    c.input(0).ToString(), c.input(1).ToString()));
  }
  c.SetOutput(0, c.input(0));
  return {};
}

constexpr OpDef WriteOp(const char* name, const char* doc, DTypeSet types) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"variable"}, {"value"}},
          .types = {{"T", types}},
          .shape = WriteShape,
          .gradient = NotDifferentiable,
          .stateful = true,
          .mutates = 1,
          .probes = {{.inputs = {{.shape = {2, 3}}, {.shape = {2, 3}}}}}};
}

constexpr OpDef AssignOp() {
  OpDef op = WriteOp("Assign", "variable = value.", kAnyType);
  op.attrs = {{"initializer", false}};
  return op;
}

constexpr OpDef kStateOps[] = {
    {.name = "Variable",
     .doc = "Reads a variable, a value that outlives the step.",
     .outputs = {{"y", "dtype"}},
     .types = {},
     .attrs = {{"dtype", AttrType::kDType},
               {"shape", AttrType::kShape},
               {"trainable", true}},
     .shape = [](InferContext& c) -> Status {
       const Shape& shape = c.attrs().ShapeOf("shape");
       if (!shape.concrete()) {
         return InvalidArgument(fmt::format(
             "a variable needs a concrete shape, got {}", shape.ToString()));
       }
       c.SetOutput(0, shape);
       return {};
     },
     .gradient = NotDifferentiable,
     .stateful = true},
    AssignOp(),
    WriteOp("AssignAdd", "variable += value.", kNumeric),
    WriteOp("AssignSub", "variable -= value.", kNumeric),
};

Output Write(const char* op, const Operand& variable, const Operand& value) {
  return variable.graph().Add({op, {variable, value}}).output(0);
}

}  // namespace

std::span<const OpDef> StateOps() {
  return kStateOps;
}

Output Assign(Operand variable, Operand value) {
  return Write("Assign", variable, value);
}
Output AssignAdd(Operand variable, Operand value) {
  return Write("AssignAdd", variable, value);
}
Output AssignSub(Operand variable, Operand value) {
  return Write("AssignSub", variable, value);
}

}  // namespace sluice
