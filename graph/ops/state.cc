#include "graph/ops/state.h"

#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "graph/ops/element_updates.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/tables.h"
#include "graph/traversal.h"

namespace sluice {
namespace {

// Checks that `value` fits the variable it is written to, and `apply`.
Status WriteShape(InferContext& c) {
  if (!Compatible(c.input(0), c.input(1))) {
    return InvalidArgument(
        fmt::format("the variable has shape {}, the value {}",
                    c.input(0).ToString(), c.input(1).ToString()));
  }
  if (c.num_inputs() > 2 && !c.input(2).scalar()) {
    return InvalidArgument(
        fmt::format("'apply' has shape {}, wanted []", c.input(2).ToString()));
  }
  c.SetOutput(0, c.input(0));
  return {};
}

constexpr ProbeInput kProbe = {.shape = {2, 3}};

constexpr OpDef WriteOp(const char* name, const char* doc, DTypeSet types) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"variable"},
                     {"value"},
                     {.name = "apply", .type = "bool", .optional = true}},
          .types = {{"T", types}},
          .shape = WriteShape,
          .gradient = NotDifferentiable,
          .stateful = true,
          .mutates = 1,
          .probes = {{.inputs = {kProbe, kProbe}},
                     {.inputs = {kProbe, kProbe, {.values = {1}}}},
                     {.inputs = {kProbe, kProbe, {.values = {0}}}}}};
}

// Or that it fits behind the variable's first rows.
Status AssignShape(InferContext& c) {
  const int64_t first = c.attrs().Int("first_row");
  if (first < 0) return WriteShape(c);
  const Shape& variable = c.input(0);
  Shape rows = c.input(1);
  if (rows.rank() < 1 || c.num_inputs() > 2) {
    return InvalidArgument("rows are assigned from a tensor of rows, always");
  }
  if (rows[0] != kUnknown && rows[0] > variable[0] - first) {
    return InvalidArgument(
        fmt::format("the variable has {} rows, the value {} from row {} on",
                    variable[0], rows[0], first));
  }
  rows.set(0, variable[0]);
  if (!Compatible(variable, rows)) {
    return InvalidArgument(fmt::format("the variable has shape {}, its rows {}",
                                       variable.ToString(),
                                       c.input(1).ToString()));
  }
  c.SetOutput(0, variable);
  return {};
}

constexpr OpDef AssignOp() {
  OpDef op = WriteOp("Assign",
                     "variable = value, or its rows from first_row on, where "
                     "that is not negative.",
                     kAnyType);
  op.attrs = {{"initializer", false}, {"first_row", -1}};
  op.shape = AssignShape;
  op.probes = {
      op.probes[0],
      op.probes[1],
      op.probes[2],
      {.inputs = {{.shape = {5, 3}}, kProbe}, .attrs = {{"first_row", 2}}}};
  op.assigns = true;
  // Without a condition. Of first values that come by and by the first does.
  op.initializes = [](const Node& node) {
    return node.num_inputs() == 2 &&
           (node.attrs().Int("first_row") < 0 || node.IsInitializer());
  };
  return op;
}

// All variables, then all values; then `apply`, which is not optional here.
Status AssignListShape(InferContext& c) {
  const int64_t variables = c.attrs().Int("variables");
  const int tensors = c.num_inputs() - 1;
  if (variables < 1 || variables > tensors || tensors != 2 * variables) {
    return InvalidArgument(
        fmt::format("{} variables want as many values, got {} tensors in all",
                    variables, tensors));
  }
  for (int i = 0; i < variables; ++i) {
    const int value = static_cast<int>(variables) + i;
    if (!Compatible(c.input(i), c.input(value))) {
      return InvalidArgument(
          fmt::format("variable {} has shape {}, its value {}", i,
                      c.input(i).ToString(), c.input(value).ToString()));
    }
  }
  if (!c.input(tensors).scalar()) {
    return InvalidArgument(fmt::format("'apply' has shape {}, wanted []",
                                       c.input(tensors).ToString()));
  }
  c.SetOutput(0, c.input(0));
  return {};
}

constexpr Probe AssignListProbe(double apply) {
  constexpr ProbeInput kOther = {.shape = {37}};
  return {.inputs = {kProbe, kOther, kProbe, kOther, {.values = {apply}}},
          .attrs = {{"variables", 2}}};
}

// What the fusion pass makes of many small ones.
constexpr OpDef AssignListOp() {
  return {.name = "AssignList",
          .doc = "Assign for a list of variables, in one pass.",
          .made_by = MadeBy::kEngine,
          .inputs = {{.name = "tensors", .variadic = true}, {"apply", "bool"}},
          .types = {{"T", kAnyType}},
          .attrs = {{"variables", AttrType::kInt}},
          .shape = AssignListShape,
          .gradient = NotDifferentiable,
          .stateful = true,
          .mutates = 1,
          .mutates_attr = "variables",
          .assigns = true,
          .initializes =
              [](const Node& node) {
                const Output& apply = node.input(node.num_inputs() - 1);
                const Tensor* value = ConstantValue(apply);
                return value != nullptr && value->At(0) != 0;
              },
          .probes = {AssignListProbe(1), AssignListProbe(0)}};
}

constexpr OpDef kStateOps[] = {
    {.name = "Variable",
     .doc = "Reads a variable, a value that outlives the step.",
     .builder = "Graph::Variable",
     .kind = OpKind::kVariable,
     .outputs = {{"y", "dtype"}},
     .types = {},
     .attrs = {{"dtype", AttrType::kDType},
               {"shape", AttrType::kShape},
               {"trainable", true},
               {"part_of", 0},
               {"rows_over", ""}},
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
     .stateful = true,
     .instruction = false},
    AssignOp(),
    AssignListOp(),
    WriteOp("AssignAdd", "variable += value.", kNumeric),
    WriteOp("AssignSub", "variable -= value.", kNumeric),
};

// Whether the last operand, which may be left out, is a condition.
bool TakesCondition(const Node& update) {
  const auto& operands = update.op().inputs;
  return update.mutates() > 0 && operands[operands.size() - 1].optional;
}

// The first write that `others` need and that is none of `writes`, or null.
const Node* OtherWrite(const std::vector<const Node*>& others,
                       const std::unordered_set<const Node*>& writes) {
  const Node* first = nullptr;
  for (const Node* node : Needed(others)) {
    if (node->mutates() == 0 || writes.contains(node)) continue;
    if (first == nullptr || node->id() < first->id()) first = node;
  }
  return first;
}

// That `update`, whose members these are (MembersOf), updates something, and
// all of it by members that may have a condition.
void CheckConditional(const Node& update, const std::vector<Node*>& members) {
  std::unordered_set<const Node*> writes;
  std::vector<const Node*> others;
  for (const Node* node : members) {
    if (node->mutates() == 0) {
      others.push_back(node);
      continue;
    }
    writes.insert(node);
    if (TakesCondition(*node)) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: the op has no operand that could make it "
                            "conditional; build the update of Assign ({})",
                            node->Describe(), node->location()));
  }
  if (const Node* const write = OtherWrite(others, writes)) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: it is computed of what {} writes, which no "
                    "condition of it would stop; give MakeConditional "
                    "that write ({})",
                    update.Describe(), write->Describe(), write->location()));
  }
  if (!writes.empty()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: it updates no variable: MakeConditional has "
                          "nothing to make conditional ({})",
                          update.Describe(), update.location()));
}

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

bool UpdatesByElements(const Node& node) {
  const OpDef& op = node.op();
  if (op.rule != nullptr) return op.mutates_attr == nullptr && !op.scatters;
  if (op.shape == AssignShape) return node.attrs().Int("first_row") < 0;
  return op.mutates == 1 && op.shape == WriteShape;
}

Output ConditionOf(const Node& update) {
  const bool conditional = TakesCondition(update) &&
                           update.num_inputs() == update.op().inputs.size();
  return conditional ? update.inputs().back() : Output();
}

void MakeConditional(const Operation& update, const Output& condition) {
  const std::vector<Node*> members = MembersOf({&update.node()});
  CheckConditional(update.node(), members);
  for (Node* const node : members) {
    if (node->mutates() == 0) continue;
    std::vector<Output> inputs = node->inputs();
    if (const Output before = ConditionOf(*node); before.valid()) {
      inputs.back() = LogicalAnd(before, condition);
    } else {
      inputs.push_back(condition);
    }
    node->set_inputs(std::move(inputs));
    ThrowIfError(Graph::Infer(*node));
  }
}

}  // namespace sluice
