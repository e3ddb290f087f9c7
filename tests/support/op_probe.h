// One op under test: a graph with a single node made from one of the op's
// probes, and values for its inputs.
#ifndef SLUICE_TESTS_SUPPORT_OP_PROBE_H_
#define SLUICE_TESTS_SUPPORT_OP_PROBE_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/op.h"

namespace sluice::testing {

// What each dtype variable of an op stands for.
using TypeBinding = std::map<std::string, DType>;

inline std::vector<DType> AllowedTypes(const DTypeSet& set) {
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (set.Contains(static_cast<DType>(i))) {
      types.push_back(static_cast<DType>(i));
    }
  }
  return types;
}

// float64 where allowed, else the first of int64, bool that is, else any.
inline DType WidestType(const DTypeSet& set) {
  for (DType t : {DType::kFloat64, DType::kInt64, DType::kBool}) {
    if (set.Contains(t)) return t;
  }
  return AllowedTypes(set).front();
}

// The binding of the widest types, and those that differ from it in one
// variable.
inline TypeBinding WidestBinding(const OpDef& op) {
  TypeBinding binding;
  for (const TypeVar& var : op.types) {
    binding[var.name] = WidestType(var.allowed);
  }
  return binding;
}
inline std::vector<TypeBinding> OtherBindings(const OpDef& op) {
  std::vector<TypeBinding> bindings;
  const TypeBinding widest = WidestBinding(op);
  for (const TypeVar& var : op.types) {
    for (DType dtype : AllowedTypes(var.allowed)) {
      if (dtype == widest.at(var.name)) continue;
      bindings.push_back(widest);
      bindings.back()[var.name] = dtype;
    }
  }
  return bindings;
}

inline std::string ToString(const TypeBinding& binding) {
  std::string out;
  for (const auto& [name, dtype] : binding) {
    out += (out.empty() ? "" : " ") + name + "=" + std::string(NameOf(dtype));
  }
  return out;
}

// Does the probe hold values that only floats can?
inline bool HasNonFinite(const Probe& probe) {
  for (const ProbeInput& input : probe.inputs) {
    for (double v : input.values) {
      if (!std::isfinite(v)) return true;
    }
  }
  return false;
}

// Elements for an operand: the probe's values repeated, or uniform in its
// range; rounded to what dtype holds.
inline Tensor ProbeValue(const ProbeInput& input, const Shape& shape,
                         DType dtype, std::mt19937_64& random) {
  Tensor wide(DType::kFloat64, shape);
  const bool integral = !IsFloating(dtype);
  for (int64_t i = 0; i < wide.elements(); ++i) {
    double v;
    if (!input.values.empty()) {
      v = input.values[static_cast<int>(i % input.values.size())];
    } else if (dtype == DType::kBool) {
      v = static_cast<double>(random() >> 63);
    } else if (integral) {
      const auto lo = static_cast<int64_t>(std::ceil(input.lo));
      const auto hi = std::max(lo, static_cast<int64_t>(std::floor(input.hi)));
      v = static_cast<double>(std::uniform_int_distribution(lo, hi)(random));
    } else {
      v = std::uniform_real_distribution(input.lo, input.hi)(random);
    }
    wide.data<double>()[i] = dtype == DType::kUInt8 ? std::abs(v) : v;
  }
  return wide.Cast(dtype);
}

// Turns a probe's input shape into the one to use.
using Reshaping = Shape (*)(const Shape& shape, int output_rank);

struct ProbeCase {
  std::unique_ptr<Graph> graph;
  Node* node = nullptr;
  std::vector<Tensor> values;  // of the node's inputs

  std::map<Output, Tensor> Given() const {
    std::map<Output, Tensor> given;
    for (int i = 0; i < node->num_inputs(); ++i) {
      given[node->input(i)] = values[i];
    }
    return given;
  }
};

// Operands with `values` are constants, since they may give shapes; those that
// the op updates are variables, others placeholders. What is too large to fill
// is a placeholder, too, and its value empty. Throws Error if the op refuses
// them.
inline ProbeCase MakeCase(const OpDef& op, std::span<const ProbeInput> inputs,
                          const Attributes& attrs, const TypeBinding& binding,
                          bool swap_operands = false,
                          Reshaping reshape = nullptr) {
  ProbeCase c;
  c.graph = std::make_unique<Graph>();
  std::mt19937_64 random(std::hash<std::string>()(op.name));
  NodeRequest request{op.name, {}, attrs, {}};
  for (const AttrDef& attr : op.attrs) {  // "T" may be a dtype attribute too
    if (binding.contains(attr.name) && !request.attrs.Has(attr.name)) {
      request.attrs.Set(attr.name, binding.at(attr.name));
    }
  }
  const int count = static_cast<int>(inputs.size());
  // A length that is tried for what it does may be any.
  const bool wrong_length = op.mutates_attr != nullptr &&
                            (request.attrs.Int(op.mutates_attr) < 1 ||
                             request.attrs.Int(op.mutates_attr) > count);
  const int mutated = wrong_length ? 0 : op.Mutates(request.attrs);
  int rank = 0;
  for (const ProbeInput& input : inputs) {
    rank = std::max(rank, input.shape.size());
  }
  for (int i = 0; i < count; ++i) {
    const ProbeInput& input = inputs[i];
    const ArgDef& arg = op.InputArg(i, count);
    DType dtype;
    if (binding.contains(arg.type)) {
      dtype = binding.at(arg.type);
    } else if (std::string_view(arg.type) == kTOrHalf) {
      dtype = input.half ? DType::kFloat16 : binding.at("T");
    } else if (std::string_view(arg.type) == kComputeOfT) {
      dtype = ComputeDType(binding.at("T"));
    } else if (const AttrValue* attr = request.attrs.Find(arg.type)) {
      dtype = attr->get<DType>();
    } else {
      dtype = *ParseDType(arg.type);
    }
    Shape shape(std::span(input.shape.begin(), input.shape.size()));
    if (reshape != nullptr) shape = reshape(shape, rank);
    const Result<int64_t> elements = CheckedElements(shape.dims());
    const bool filled = elements.ok() && *elements < int64_t{1} << 24;
    const Tensor value =
        filled ? ProbeValue(input, shape, dtype, random) : Tensor();
    const std::string name = "in" + std::to_string(i);
    Output operand;
    if (i < mutated) {
      operand =
          c.graph
              ->Add(
                  {"Variable", {}, {{"dtype", dtype}, {"shape", shape}}, name})
              .output(0);
    } else if (!input.values.empty() && filled) {
      operand = c.graph->Constant(value, name);
    } else {
      operand = c.graph->Placeholder(name, dtype, shape);
    }
    request.inputs.emplace_back(operand);
    c.values.push_back(value);
  }
  if (swap_operands) {
    std::swap(request.inputs[0], request.inputs[1]);
    std::swap(c.values[0], c.values[1]);
  }
  c.node = &c.graph->Add(std::move(request));
  return c;
}

inline Attributes AttributesOf(const Probe& probe) {
  Attributes attrs;
  for (const AttrSetting& attr : probe.attrs) {
    attrs.Set(attr.name, attr.value.ToValue());
  }
  return attrs;
}

inline ProbeCase MakeProbeCase(const OpDef& op, const Probe& probe,
                               const TypeBinding& binding,
                               bool swap_operands = false,
                               Reshaping reshape = nullptr) {
  return MakeCase(op, {probe.inputs.begin(), probe.inputs.end()},
                  AttributesOf(probe), binding, swap_operands, reshape);
}

// Which input takes any number of operands, or -1.
inline int VariadicInput(const OpDef& op) {
  for (int i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i].variadic) return i;
  }
  return -1;
}

// The probe with `count` operands where the op takes any number, those that it
// has again and again: of each kind so many, as of variables and gradients.
// Throws Error if the op refuses them.
inline ProbeCase MakeManyCase(const OpDef& op, const Probe& probe,
                              const TypeBinding& binding, int count) {
  Attributes attrs = AttributesOf(probe);
  const int first = VariadicInput(op);
  const int any = probe.inputs.size() - (op.inputs.size() - 1);
  int each = any;  // of a kind
  if (op.mutates_attr != nullptr) {
    each = static_cast<int>(attrs.Int(op.mutates_attr));
    attrs.Set(op.mutates_attr, int64_t{count});
  }
  std::vector<ProbeInput> inputs(probe.inputs.begin(),
                                 probe.inputs.begin() + first);
  for (int kind = 0; kind < any / each; ++kind) {
    for (int i = 0; i < count; ++i) {
      inputs.push_back(probe.inputs[first + kind * each + i % each]);
    }
  }
  inputs.insert(inputs.end(), probe.inputs.begin() + first + any,
                probe.inputs.end());
  return MakeCase(op, inputs, attrs, binding);
}

// --- Probes of other sizes ---------------------------------------------------

template <typename T, int N>
void Replace(FixedList<T, N>* list, int at, T value) {
  std::vector<T> items(list->begin(), list->end());
  items[at] = value;
  *list = FixedList<T, N>(items.data(), static_cast<int>(items.size()));
}

// Whether input i of the probe is a vector of sizes.
inline bool IsShapeOperand(const OpDef& op, const Probe& probe, int i) {
  return !probe.inputs[i].values.empty() &&
         std::string_view(op.InputArg(i, probe.inputs.size()).type) == "int64";
}

struct ResizedProbe {
  std::string what;  // "input 0 dimension 2 is 0"
  Probe probe;
};

// The probe with every dimension `to` by itself, and with every size `to`
// wherever it occurs. The op may refuse what comes of it.
inline std::vector<ResizedProbe> Resized(const OpDef& op, const Probe& probe,
                                         int64_t to) {
  std::vector<ResizedProbe> resized;
  std::set<int64_t> sizes;
  for (int i = 0; i < probe.inputs.size(); ++i) {
    const Ints& shape = probe.inputs[i].shape;
    for (int d = 0; d < shape.size(); ++d) {
      sizes.insert(shape[d]);
      Probe one = probe;
      ProbeInput input = one.inputs[i];
      Replace(&input.shape, d, to);
      Replace(&one.inputs, i, input);
      resized.push_back({"input " + std::to_string(i) + " dimension " +
                             std::to_string(d) + " is " + std::to_string(to),
                         one});
    }
  }
  for (const int64_t size : sizes) {
    Probe all = probe;
    for (int i = 0; i < probe.inputs.size(); ++i) {
      ProbeInput input = all.inputs[i];
      const bool operand = IsShapeOperand(op, probe, i);
      for (int d = 0; d < input.shape.size() && !operand; ++d) {
        if (input.shape[d] == size) Replace(&input.shape, d, to);
      }
      for (int v = 0; v < input.values.size() && operand; ++v) {
        if (input.values[v] == static_cast<double>(size)) {
          Replace(&input.values, v, static_cast<double>(to));
        }
      }
      Replace(&all.inputs, i, input);
    }
    resized.push_back(
        {"every " + std::to_string(size) + " is " + std::to_string(to), all});
  }
  return resized;
}

// The end of what another op begins, and nothing without it.
inline bool IsWait(const OpDef& op) {
  const auto all = OpTable::Global().All();
  return std::any_of(all.begin(), all.end(), [&](const OpDef* start) {
    return start->wait != nullptr && std::string_view(start->wait) == op.name;
  });
}

// Ops that compute nothing themselves: values come from outside, or they exist
// for their effect on the outside, or they pass on what goes to other devices,
// or are a half of what another op does.
inline bool NeedsProbe(const OpDef& op) {
  return !op.inputs.empty() && !op.sink && !op.runs && op.wait == nullptr &&
         !IsWait(op);
}

// Faults of one op, at most a few of which are kept.
class Faults {
 public:
  void Add(const std::string& fault) {
    if (++count_ <= 4) text_ += "\n    " + fault;
  }
  bool empty() const { return count_ == 0; }
  std::string ToString() const {
    return text_ + (count_ > 4
                        ? "\n    and " + std::to_string(count_ - 4) + " more"
                        : "");
  }

 private:
  int count_ = 0;
  std::string text_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_OP_PROBE_H_
