// Algebraic identities. Each rule of the table holds for every bit of every
// value, so x + 0 is no rule for floats (-0 + 0 = 0), nor is x * 0 = 0 (NaN).
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

// Whether all elements are `value`, signs of zeros included.
bool IsAll(const Output& output, double value) {
  const Tensor* tensor = ConstantValue(output);
  if (tensor == nullptr) return false;
  for (int64_t i = 0; i < tensor->elements(); ++i) {
    const double element = tensor->At(i);
    if (element != value || std::signbit(element) != std::signbit(value)) {
      return false;
    }
  }
  return true;
}

// `x` if the node's type is surely x's, or nothing.
Output IfSameType(const Node& node, const Output& x) {
  if (node.output_type(0).dtype != x.dtype()) return {};
  const bool same = x.shape().concrete() &&
                    node.output_type(0).shape.concrete() &&
                    node.output_type(0).shape == x.shape();
  return same ? x : Output();
}

// x where the other operand is neutral: a scalar or no larger than x.
Output IfNeutral(const Node& node, int x, double neutral) {
  const Output& other = node.input(1 - x);
  if (!IsAll(other, neutral)) return {};
  const Shape& shape = other.shape();
  const bool ones =
      shape.rank() <= node.input(x).shape().rank() &&
      std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d == 1; });
  return ones ? node.input(x) : IfSameType(node, node.input(x));
}
Output IfEitherNeutral(const Node& node, double neutral) {
  const Output x = IfNeutral(node, 0, neutral);
  return x.valid() ? x : IfNeutral(node, 1, neutral);
}

Output AddZero(Node& node) {
  const bool integer = IsInteger(node.output_type(0).dtype);
  return IfEitherNeutral(node, integer ? 0.0 : -0.0);
}
Output SubtractZero(Node& node) {
  return IfNeutral(node, 0, 0);
}
Output MultiplyByOne(Node& node) {
  return IfEitherNeutral(node, 1);
}
Output DivideByOne(Node& node) {
  return IfNeutral(node, 0, 1);
}

// Whether a user of `inner` may look through it: nothing is waited for there,
// and nobody asked for it to be elsewhere.
bool Transparent(const Node& inner, const Node& user) {
  return inner.control_inputs().empty() &&
         (inner.device().empty() || inner.device() == user.device());
}

// f(f(x)) = x
Output Involution(Node& node) {
  const Node& inner = node.input(0).node();
  const bool undone = &inner.op() == &node.op() && Transparent(inner, node);
  return undone ? inner.input(0) : Output();
}
// f(f(x)) = f(x)
Output Idempotent(Node& node) {
  const Node& inner = node.input(0).node();
  return &inner.op() == &node.op() ? node.input(0) : Output();
}
// f(x, x) = x
Output SameOperands(Node& node) {
  return node.input(0) == node.input(1) ? node.input(0) : Output();
}
// f(x) = x when the shape (and dtype) stays
Output SameType(Node& node) {
  return IfSameType(node, node.input(0));
}
// f(x) = x, where others follow in f(x, y, ...)
Output OnlyOperand(Node& node) {
  return node.num_inputs() == 1 ? node.input(0) : Output();
}

// A view of views is x itself if it has x's type.
Output ViewsCancel(Node& node) {
  if (!node.op().view) return {};
  Output x = node.input(0);
  while (true) {
    if (IfSameType(node, x).valid()) return x;
    const Node& inner = x.node();
    if (!inner.op().view || !Transparent(inner, node)) return {};
    x = inner.input(0);
  }
}

// The bytes of a view are its operand's.
Output ReshapeOfView(Node& node) {
  const Node& inner = node.input(0).node();
  if (!inner.op().view || !Transparent(inner, node)) return {};
  node.set_input(0, inner.input(0));
  return node.output(0);
}

std::vector<int64_t> Permutation(const Node& node) {
  std::vector<int64_t> axes = node.attrs().Ints("permutation");
  if (axes.empty()) {
    for (int i = node.input(0).shape().rank(); i > 0; --i)
      axes.push_back(i - 1);
  }
  return axes;
}

// Two transposes are one, or none.
Output Transposes(Node& node) {
  std::vector<int64_t> axes = Permutation(node);
  if (std::is_sorted(axes.begin(), axes.end())) return node.input(0);
  const Node& inner = node.input(0).node();
  if (!inner.Is("Transpose") || !Transparent(inner, node)) return {};
  const std::vector<int64_t> first = Permutation(inner);
  for (int64_t& axis : axes) axis = first[axis];
  node.set_attr("permutation", axes);
  node.set_input(0, inner.input(0));
  return node.output(0);
}

// `apply` returns what replaces output 0; the output itself when the node was
// rewritten in place; or nothing when the rule does not apply.
struct Rule {
  const char* op;  // null: any
  Output (*apply)(Node& node);
};

constexpr Rule kRules[] = {
    {"Add", AddZero},              // x + -0; integers: x + 0
    {"Sub", SubtractZero},         // x - 0
    {"Mul", MultiplyByOne},        // x * 1
    {"Div", DivideByOne},          // x / 1
    {"Neg", Involution},           // -(-x)
    {"LogicalNot", Involution},    // not not x
    {"Abs", Idempotent},           // |(|x|)|
    {"Sign", Idempotent},          // sign(sign(x))
    {"Floor", Idempotent},         // floor(floor(x))
    {"Ceil", Idempotent},          // ceil(ceil(x))
    {"Round", Idempotent},         // round(round(x))
    {"Relu", Idempotent},          // relu(relu(x))
    {"Relu6", Idempotent},         // relu6(relu6(x))
    {"Maximum", SameOperands},     // max(x, x)
    {"Minimum", SameOperands},     // min(x, x)
    {"LogicalAnd", SameOperands},  // x and x
    {"LogicalOr", SameOperands},   // x or x
    {"Cast", SameType},            // to the dtype it has
    {"SumTo", SameType},           // over nothing
    {"BroadcastTo", SameType},     // to the shape it has
    {"Tile", SameType},            // once
    {"Pad", SameType},             // by nothing
    {"Slice", SameType},           // the whole
    {"Concat", OnlyOperand},       // of one
    {"AddN", OnlyOperand},         // of one
    {"Transpose", Transposes},     // of a transpose, or moving nothing
    {"Reshape", ReshapeOfView},
    {nullptr, ViewsCancel},
};

// By op, the rules for any op last.
using RulesByOp = std::unordered_map<std::string_view, std::vector<Rule>>;

// What replaces the node's output, or nothing.
Output Replacement(Node& node, const RulesByOp& rules) {
  Output found;
  auto it = rules.find(node.op().name);
  const std::vector<Rule>& candidates =
      it == rules.end() ? rules.at("") : it->second;
  for (size_t i = 0; i < candidates.size(); ++i) {
    found = candidates[i].apply(node);
    if (!found.valid()) continue;
    if (found != node.output(0)) break;
    i = static_cast<size_t>(-1);  // rewritten: from the first rule again
    found = {};
  }
  // Who reads a variable matters: node, not its users, does so (see
  // OrderVariables).
  if (found.valid() && found.node().IsVariable()) {
    node.Become(OpTable::Global().Get("Identity"), {}, {found});
    return {};
  }
  return found;
}

}  // namespace

void Simplify(Graph& graph) {
  RulesByOp rules;
  for (const Rule& rule : kRules) {
    if (rule.op != nullptr) {
      rules[rule.op].push_back(rule);
    } else {
      rules[""].push_back(rule);
    }
  }
  for (auto& [op, list] : rules) {
    if (op.empty()) continue;
    list.insert(list.end(), rules.at("").begin(), rules.at("").end());
  }

  std::unordered_map<const Node*, Output> replaced;
  for (Node* node : graph.TopologicalOrder()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      auto it = replaced.find(&node->input(i).node());
      if (it != replaced.end()) node->set_input(i, it->second);
    }
    const std::vector<Node*> controls = node->control_inputs();
    node->set_control_inputs({});
    for (Node* control : controls) {
      auto it = replaced.find(control);
      node->AddControlInput(it == replaced.end() ? control
                                                 : &it->second.node());
    }
    // A node that waits for another is kept: its users wait with it.
    if (!node->control_inputs().empty() || node->num_inputs() == 0) continue;
    const Output found = Replacement(*node, rules);
    if (!found.valid()) continue;
    // A device asked for is where the users go, too.
    const bool elsewhere =
        !node->device().empty() && node->device() != found.node().device();
    if (!elsewhere) replaced[node] = found;
  }
}

}  // namespace sluice::passes
