#include "graph/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/graph.h"
#include "graph/near_misses.h"
#include "graph/ops/tables.h"

namespace sluice {

AttrValue AttrLiteral::ToValue() const {
  switch (type) {
    case AttrType::kBool:
      return i != 0;
    case AttrType::kInt:
      return i;
    case AttrType::kFloat:
      return f;
    case AttrType::kString:
      return s;
    case AttrType::kDType:
      return static_cast<DType>(i);
    case AttrType::kInts:
      return std::vector<int64_t>(ints.begin(), ints.end());
    case AttrType::kShape:
      return Shape(std::span<const int64_t>(ints.begin(), ints.size()));
    case AttrType::kNumber:
      return Number(f);
    case AttrType::kTensor:
      break;
  }
  CheckFailed("literal attribute", __FILE__, __LINE__);
}

int OpDef::VariadicInput() const {
  for (int i = 0; i < inputs.size(); ++i) {
    if (inputs[i].variadic) return i;
  }
  return -1;
}

bool OpDef::TakesInputs(int given) const {
  const bool may_lack = !inputs.empty() && inputs[inputs.size() - 1].optional;
  return given == inputs.size() || (may_lack && given == inputs.size() - 1) ||
         (given > inputs.size() && VariadicInput() >= 0);
}

const ArgDef& OpDef::InputArg(int i, int given) const {
  const int variadic = VariadicInput();
  const int repeats = given - inputs.size();  // of the variadic one, beyond 1
  if (variadic < 0 || i <= variadic) return inputs[i];
  return inputs[std::max(i - repeats, variadic)];
}

std::string_view OpDef::ScalarFunction(const Attributes& node_attrs) const {
  if (scalar_approximate != nullptr && node_attrs.Bool("approximate")) {
    return scalar_approximate;
  }
  if (scalar != nullptr) return scalar;
  return elementwise ? name : "";
}

Outputs NotDifferentiable(const Node& node, const Outputs&) {
  return Outputs(node.num_inputs());
}

int InferContext::num_inputs() const {
  return node_.num_inputs();
}
const TensorType& InferContext::type(int input) const {
  return node_.input(input).type();
}
const Attributes& InferContext::attrs() const {
  return node_.attrs();
}

void InferContext::SetNumOutputs(int n) {
  const size_t before = outputs_->size();
  outputs_->resize(n);
  // Shapes may be set before dtypes are known; those follow from the record.
  for (size_t i = before; i < outputs_->size(); ++i) {
    (*outputs_)[i].dtype =
        node_.num_inputs() > 0 ? type(0).dtype : DType::kFloat32;
  }
}

const Tensor* InferContext::constant(int input) const {
  return ConstantValue(node_.input(input));
}

namespace {

// Shape operands are built from constants, ShapeOf and, in gradients, Concat
// and Slice of these.
bool PartialValue(const Output& vector, int depth, Shape* elements) {
  const PartialFn partial = vector.node().op().partial;
  return depth > 0 && partial != nullptr &&
         partial(vector.node(), depth - 1, elements);
}

}  // namespace

Result<Shape> InferContext::ShapeOperand(int input) const {
  const Output& operand = node_.input(input);
  if (operand.shape().rank() > 1 || !operand.shape().concrete()) {
    return InvalidArgument(
        fmt::format("the shape operand must be an integer vector of known "
                    "length, got {}",
                    operand.type().ToString()));
  }
  if (operand.shape().elements() > Shape::kMaxRank) {
    return InvalidArgument(
        fmt::format("more than {} dimensions", Shape::kMaxRank));
  }
  Shape known;
  if (PartialValue(operand, 8, &known)) {
    for (int64_t d : known) {
      if (d < kUnknown) {
        return InvalidArgument(fmt::format("negative dimension {}", d));
      }
    }
    return known;
  }
  Shape unknown;
  for (int64_t i = 0; i < operand.shape().elements(); ++i) {
    unknown.push_back(kUnknown);
  }
  return unknown;
}

Status SameShape(InferContext& c) {
  for (int i = 0; i < std::max(1, c.node().op().outputs.size()); ++i) {
    c.SetOutput(i, c.input(0));
  }
  return {};
}

Status BroadcastShape(InferContext& c) {
  Shape shape = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(shape, BroadcastShapes(shape, c.input(i)));
  }
  c.SetOutput(0, shape);
  return {};
}

Status ScalarShape(InferContext& c) {
  for (int i = 0; i < c.node().op().outputs.size(); ++i) c.SetOutput(i, {});
  return {};
}

bool PartialOfInputs(const Node& node, int depth, Shape* elements) {
  return std::all_of(node.inputs().begin(), node.inputs().end(),
                     [&](const Output& input) {
                       return PartialValue(input, depth, elements);
                     });
}

OpTable& OpTable::Global() {
  static OpTable* table = [] {
    auto* built_in = new OpTable;
    for (std::span<const OpDef> family : BuiltInOps()) {
      built_in->Register(family);
    }
    return built_in;
  }();
  return *table;
}

void OpTable::Register(const OpDef& def) {
  auto malformed = [&](std::string_view what) {
    return Error(Code::kInvalidArgument,
                 fmt::format("op '{}': {}", def.name ? def.name : "?", what));
  };
  if (def.name == nullptr || def.doc == nullptr) {
    throw malformed("a record needs a name and a doc line");
  }
  if (def.shape == nullptr && def.inputs.empty() && !def.outputs.empty()) {
    throw malformed("without inputs it needs a shape function");
  }
  if (!ops_.emplace(def.name, std::make_unique<OpDef>(def)).second) {
    throw Error(Code::kAlreadyExists,
                fmt::format("op '{}' is registered twice", def.name));
  }
}

const OpDef* OpTable::Find(std::string_view name) const {
  auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : it->second.get();
}

const OpDef* OpTable::FindInText(std::string_view name) const {
  if (const OpDef* def = Find(name)) return def;
  for (const auto& [current, def] : ops_) {
    if (def->former_name != nullptr && def->former_name == name) {
      return def.get();
    }
  }
  return nullptr;
}

const OpDef& OpTable::Get(std::string_view name) const {
  if (const OpDef* def = Find(name)) return *def;
  throw Error(Code::kNotFound,
              fmt::format("unknown op '{}'{}", name, NearMissesOf(name)));
}

std::string OpTable::NearMissesOf(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const auto& [known, def] : ops_) names.emplace_back(known);
  const std::string near = NearMisses(name, names);
  return near.empty() ? "; `sluice ops` lists them" : near;
}

std::vector<const OpDef*> OpTable::All() const {
  std::vector<const OpDef*> all;
  for (const auto& [name, def] : ops_) all.push_back(def.get());
  return all;
}

}  // namespace sluice
