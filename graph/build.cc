// How a node comes into being: attributes checked against the op's record,
// dtypes bound, shapes inferred.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "graph/graph.h"
#include "graph/input_count.h"
#include "graph/near_misses.h"
#include "graph/output_index.h"
#include "graph/reuse_variables.h"

namespace sluice {
namespace {

// "SparseSoftmaxCrossEntropy" to "sparse_softmax_cross_entropy", "Conv2D" to
// "conv2d".
std::string SnakeCase(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool upper = std::isupper(static_cast<unsigned char>(name[i]));
    const bool after_lower =
        i > 0 && std::islower(static_cast<unsigned char>(name[i - 1]));
    if (upper && after_lower) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

std::string ShapesOf(const std::vector<Output>& inputs) {
  std::string out;
  for (const Output& input : inputs) {
    if (!out.empty()) out += ", ";
    out += input.type().ToString();
  }
  return out;
}

const TypeVar* FindVar(const OpDef& op, std::string_view name) {
  for (const TypeVar& var : op.types) {
    if (var.name == name) return &var;
  }
  return nullptr;
}

Status CheckAttributes(const OpDef& op, Attributes* attrs) {
  Attributes checked;
  for (const AttrDef& def : op.attrs) {
    const AttrValue* given = attrs->Find(def.name);
    if (given == nullptr) {
      if (def.required) {
        return InvalidArgument(fmt::format("attribute '{}' ({}) is missing",
                                           def.name, NameOf(def.type)));
      }
      checked.Set(def.name, def.fallback.ToValue());
    } else if (def.type == AttrType::kNumber &&
               given->type() == AttrType::kFloat) {
      checked.Set(def.name, Number(given->get<double>()));
    } else if (Fits(def.type, given->type())) {
      checked.Set(def.name, *given);
    } else if (given->type() == AttrType::kInt &&
               def.type == AttrType::kFloat) {
      checked.Set(def.name, static_cast<double>(given->get<int64_t>()));
    } else {
      return InvalidArgument(
          fmt::format("attribute '{}' is of type {}, wanted {}", def.name,
                      NameOf(given->type()), NameOf(def.type)));
    }
  }
  for (const auto& [name, value] : *attrs) {
    if (!checked.Has(name)) {
      std::vector<std::string_view> names;
      for (const AttrDef& def : op.attrs) names.emplace_back(def.name);
      const std::string near = NearMisses(name, names);
      return InvalidArgument(fmt::format(
          "no attribute '{}'{} the op has {}", name, near.empty() ? ";" : near,
          names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
  }
  *attrs = std::move(checked);
  return {};
}

// What an operand's type in the record stands for, apart from type variables.
Result<DType> PlainType(const Node& node, const char* type,
                        const std::map<std::string_view, DType>& bound) {
  if (std::string_view(type) == kComputeOfT) return ComputeDType(bound.at("T"));
  if (node.attrs().Has(type)) return node.attrs().Type(type);
  return ParseDType(type);
}

// Binds type variables from the inputs and fills the outputs' dtypes.
Status InferTypes(const Node& node, std::vector<TensorType>* outputs) {
  const OpDef& op = node.op();
  std::map<std::string_view, DType> bound;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const ArgDef& arg = op.InputArg(i, node.num_inputs());
    const DType got = node.input(i).dtype();
    const bool or_half = std::string_view(arg.type) == kTOrHalf;
    if (const TypeVar* var = FindVar(op, or_half ? "T" : arg.type)) {
      auto [it, fresh] = bound.emplace(var->name, got);
      if (it->second != got && !(or_half && IsHalf(got))) {
        return InvalidArgument(
            fmt::format("dtypes differ: '{}' is {}, another operand {}",
                        arg.name, NameOf(got), NameOf(it->second)));
      }
      if (fresh && !var->allowed.Contains(got)) {
        return InvalidArgument(
            fmt::format("'{}' cannot be {}", arg.name, NameOf(got)));
      }
    } else {
      SLUICE_ASSIGN_OR_RETURN(const DType wanted,
                              PlainType(node, arg.type, bound));
      if (wanted != got) {
        return InvalidArgument(fmt::format("'{}' is {}, wanted {}", arg.name,
                                           NameOf(got), NameOf(wanted)));
      }
    }
  }
  for (int i = 0; i < static_cast<int>(outputs->size()); ++i) {
    const ArgDef& arg = op.outputs[std::min(i, op.outputs.size() - 1)];
    TensorType& out = (*outputs)[i];
    if (auto it = bound.find(arg.type); it != bound.end()) {
      out.dtype = it->second;
    } else if (node.attrs().Has(arg.type)) {
      out.dtype = node.attrs().Type(arg.type);
      const TypeVar* var = FindVar(op, arg.type);
      if (var != nullptr && !var->allowed.Contains(out.dtype)) {
        return InvalidArgument(
            fmt::format("'{}' cannot be {}", arg.name, NameOf(out.dtype)));
      }
    } else {
      SLUICE_ASSIGN_OR_RETURN(out.dtype, PlainType(node, arg.type, bound));
    }
  }
  return {};
}

// What no tensor can be, however its unknown dimensions turn out.
Status CheckSizes(const std::vector<TensorType>& types) {
  for (const TensorType& type : types) {
    SLUICE_RETURN_IF_ERROR(CheckTensorSize(type.dtype, type.shape));
  }
  return {};
}

// What calls that share a variable must agree on: "float32[4,2], trainable".
std::string KindOfVariable(const TensorType& type, bool trainable,
                           int64_t part_of) {
  std::string kind = type.ToString();
  if (part_of > 0) kind += fmt::format(" of {}", part_of);
  return kind + (trainable ? ", trainable" : ", not trainable");
}
std::string KindOfVariable(const Node& node) {
  if (!node.IsVariable()) return "no variable";
  return KindOfVariable(node.output_type(0), node.attrs().Bool("trainable"),
                        node.part_of());
}

}  // namespace

Result<std::vector<TensorType>> Graph::InferredTypes(const Node& node) {
  const OpDef& op = node.op();
  const bool variadic =
      !op.outputs.empty() && op.outputs[op.outputs.size() - 1].variadic;
  std::vector<TensorType> outputs(variadic ? 0 : op.outputs.size());
  InferContext context(node, &outputs);
  Status status = InferTypes(node, &outputs);
  if (status.ok()) {
    status = op.shape                                    ? op.shape(context)
             : node.num_inputs() > 0 && !outputs.empty() ? SameShape(context)
                                                         : Status::Ok();
  }
  if (status.ok() && variadic) status = InferTypes(node, &outputs);
  if (status.ok()) status = CheckSizes(outputs);
  if (!status.ok()) {
    std::string message = node.Describe() + ": " + status.message();
    if (node.num_inputs() > 0) {
      message += fmt::format("; inputs {}", ShapesOf(node.inputs()));
    }
    if (!node.location().empty()) message += " (" + node.location() + ")";
    return Status(status.code(), message);
  }
  return outputs;
}

Status Graph::Infer(Node& node) {
  SLUICE_ASSIGN_OR_RETURN(node.outputs_, InferredTypes(node));
  if (std::max(node.num_inputs(), node.num_outputs()) <= kMostOperands) {
    return {};
  }
  return InvalidArgument(fmt::format(
      "{}: {} inputs and {} outputs, of which there may be {}", node.name(),
      node.num_inputs(), node.num_outputs(), kMostOperands));
}

Node& Graph::Add(NodeRequest request, Location location) {
  // An operand knows its user's line; for the rest the call is the place.
  if (!request.inputs.empty()) location = request.inputs[0].location();
  const std::string where =
      location_.empty() ? FormatLocation(location) : location_;
  const OpDef* op = OpTable::Global().Find(request.op);
  if (op == nullptr) {
    throw Error(Code::kNotFound,
                fmt::format("unknown op '{}'{} ({})", request.op,
                            OpTable::Global().NearMissesOf(request.op), where));
  }
  const std::string name =
      UniqueName(request.name.empty() ? SnakeCase(op->name) : request.name);
  auto fail = [&](const std::string& message) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{} '{}': {} ({})", op->name, name, message, where));
  };

  const int given = static_cast<int>(request.inputs.size());
  if (!op->TakesInputs(given)) {
    fail(fmt::format("{} inputs given, wanted {}", given, InputCountText(*op)));
  }
  if (Status status = CheckAttributes(*op, &request.attrs); !status.ok()) {
    fail(status.message());
  }
  if (op->mutates_attr != nullptr) {
    const int64_t length = request.attrs.Int(op->mutates_attr);
    if (length < 1 || length > given) {
      fail(fmt::format("'{}' is {}, with {} inputs", op->mutates_attr, length,
                       given));
    }
  }

  // Before anything asks for the type of one.
  for (int i = 0; i < given; ++i) {
    const Output& output = request.inputs[i].output();
    if (!output.valid()) continue;
    const Status has = CheckOutputIndex(output.node(), output.index());
    if (!has.ok()) fail(fmt::format("input {}: {}", i, has.message()));
  }

  // A number takes the dtype of a tensor that shares its type variable.
  std::vector<Output> inputs(given);
  for (int i = 0; i < given; ++i) {
    const Operand& operand = request.inputs[i];
    if (operand.empty()) {
      fail(fmt::format("'{}' is an empty Output, wanted a tensor",
                       op->InputArg(i, given).name));
    }
    if (!operand.is_number()) {
      inputs[i] = operand.output();
      if (&inputs[i].graph() != this) {
        fail(fmt::format("input {} belongs to another graph", i));
      }
      continue;
    }
    const Operand* model = nullptr;
    for (int j = 0; j < given && model == nullptr; ++j) {
      if (request.inputs[j].output().valid() &&
          std::string_view(op->InputArg(j, given).type) ==
              op->InputArg(i, given).type) {
        model = &request.inputs[j];
      }
    }
    if (model == nullptr) {
      fail(fmt::format("'{}' is the number {}, wanted a tensor",
                       op->InputArg(i, given).name,
                       operand.number().ToString()));
    }
    const DType dtype = model->output().dtype();
    if (Status held = CheckHolds(dtype, operand.number()); !held.ok()) {
      fail(fmt::format("'{}': {}; cast the tensor", op->InputArg(i, given).name,
                       held.message()));
    }
    inputs[i] = Constant(operand.number(), dtype, operand.location());
  }

  Node& node =
      AddRaw(name, name, *op, std::move(request.attrs), std::move(inputs), {});
  node.device_ = device_;
  node.location_ = where;
  for (Node* control : controls_) node.AddControlInput(control);
  if (Status status = Infer(node); !status.ok()) {
    by_name_.erase(name);
    nodes_.pop_back();
    throw Error(status);
  }
  return node;
}

Output Graph::Placeholder(const std::string& name, DType dtype,
                          const Shape& shape, Location location) {
  return Add({"Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, name},
             location)
      .output(0);
}

Output Graph::Variable(const std::string& name, const Initializer& initializer,
                       const VariableOptions& options, Location location) {
  const std::string full = scope_ + name;
  const bool trainable = options.trainable && !Frozen(full);
  if (const Node* there = Find(full)) {
    const bool reused = reuse_ != nullptr && reuse_->Covers(full);
    const std::string is = KindOfVariable(*there);
    const std::string wanted = KindOfVariable(
        {initializer.dtype, initializer.shape}, trainable, options.part_of);
    if (reused && is == wanted) return there->output(0);
    throw Error(
        Code::kAlreadyExists,
        fmt::format("there is a node '{}' already{}; give the variable another "
                    "name or scope{} ({})",
                    full, reused ? fmt::format(", {}, not {}", is, wanted) : "",
                    reused ? "" : ", or share it (ReuseVariables)",
                    FormatLocation(location)));
  }
  // Not below any control input: initialisation runs by itself, and who reads
  // the variable waits for what it says itself.
  const ControlScope restored(*this, {});
  controls_.clear();
  Output variable = Add({"Variable",
                         {},
                         {{"dtype", initializer.dtype},
                          {"shape", initializer.shape},
                          {"trainable", trainable},
                          {"part_of", options.part_of}},
                         name},
                        location)
                        .output(0);
  LocationScope at(*this, location);
  NameScope scope(*this, name + "/init");
  const Output value = initializer.value(*this);
  Add({"Assign", {variable, value}, {{"initializer", true}}, "assign"},
      location);
  return variable;
}

Output Graph::Constant(Tensor value, const std::string& name,
                       Location location) {
  if (!value.owns_alone()) value = value.Clone();
  return Add({"Const", {}, {{"value", std::move(value)}}, name}, location)
      .output(0);
}

Output Graph::Constant(const Number& value, DType dtype, Location location) {
  if (Status held = CheckHolds(dtype, value); !held.ok()) {
    throw Error(
        held.code(),
        fmt::format("Const: {} ({})", held.message(),
                    location_.empty() ? FormatLocation(location) : location_));
  }
  return Constant(Tensor::Full(dtype, {}, value), "const", location);
}

Initializer CopyOf(Tensor value) {
  if (!value.owns_alone()) value = value.Clone();
  return {value.dtype(), value.shape(),
          // Nobody writes there, so that it need not be copied again.
          [kept = std::move(value)](Graph& graph) {
            return graph.Add({"Const", {}, {{"value", kept}}}).output(0);
          }};
}

Initializer Filled(const Number& value, const Shape& shape, DType dtype) {
  return {dtype, shape, [=](Graph& graph) {
            const Tensor dims = Tensor::Vector<int64_t>(shape.dims());
            const Output shape_operand = graph.Constant(dims, "shape");
            const Output scalar = graph.Constant(value, dtype);
            return graph.Add({"Fill", {shape_operand, scalar}}).output(0);
          }};
}
Initializer Zeros(const Shape& shape, DType dtype) {
  return Filled(0, shape, dtype);
}
Initializer Ones(const Shape& shape, DType dtype) {
  return Filled(1, shape, dtype);
}

}  // namespace sluice
