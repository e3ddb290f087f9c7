// Mixed precision. Which nodes compute in half follows from the rules in their
// records (HalfRule) and from where they stand:
//
//   kPrefer   always
//   kFollow   where an operand comes from a node in half and a result, through
//             others like it, goes to one that prefers half. So a bias or a
//             residual between two convolutions is added in half; what is
//             added to logits, or to a weight's gradient, is not.
//   kFloat32  never
//
// Nor does a node become half that computes with a number that half cannot
// hold, an operand or an attribute, or, but for products, that has an operand
// made of such numbers: in x / max(y, 1e-8) nothing is divided by 0. Nor, in
// float16, does a quotient unless its divisor is made of halves alone or is a
// constant of which half holds all; nor the product or quotient of one number
// and a tensor, unless that number is made so, a constant or a weight: how
// large a sum, a count or the reciprocal of a loss scale is, is not known
// before the step runs. Half would take a large divisor for infinity, a small
// factor for 0, and what they scale would be 0 without a sign of it.
//
// Values change dtype where a node's operand is wanted otherwise than it is
// made: by one Cast for each tensor, dtype and device, however many read it.
// Variables stay float32; a weight is cast once per step. What takes a part of
// one (Gather, Slice) has no operand in half, and so does not follow: its
// result is cast, a table's rows and never the table.
// Between devices half travels: what is joined of several devices' tensors is
// joined of their halves where half is wanted, and a part that goes to other
// devices is one of half where that is there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/passes/passes.h"
#include "graph/passes/variable_writes.h"
#include "graph/traversal.h"

namespace sluice::passes {
namespace {

bool IsT(const ArgDef& arg) {
  return std::string_view(arg.type) == "T";
}

// Is input i, or output i, of the op's type variable T?
bool InputIsT(const Node& node, int i) {
  return IsT(node.op().InputArg(i, node.num_inputs()));
}
bool OutputIsT(const Node& node, int i) {
  const auto& outputs = node.op().outputs;
  return IsT(outputs[std::min(i, outputs.size() - 1)]);
}

class Mixer {
 public:
  Mixer(Graph& graph, DType half)
      : graph_(graph),
        half_(half),
        order_(graph.TopologicalOrder()),
        writes_(order_) {
    FindBeyond();
    for (const Node* node : order_) {
      if (MayBeHalf(*node)) may_.insert({node, {}});
      for (int i = 0; i < node->num_inputs(); ++i) {
        declared_[{node, i}] = node->input(i).dtype();
      }
    }
    FindLeaving();
  }

  Status Run() {
    Decide();
    for (Node* node : order_) {
      const bool is_half = InHalf(*node);
      if (is_half) in_half_.insert(node);
      bool changed = is_half;
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Output from = Replaced(node->input(i));
        // A Cast takes what there is: widening half first changes nothing.
        const DType wanted = is_half && InputIsT(*node, i) ? half_
                             : node->Is("Cast")            ? from.dtype()
                                                : declared_.at({node, i});
        const Output to = As(from, wanted, *node);
        changed |= !(to == node->input(i));
        node->set_input(i, to);
      }
      new_order_.push_back(node);
      if (changed) SLUICE_RETURN_IF_ERROR(Graph::Infer(*node));
      // A Cast of the model's to half finds its operand in half already. One
      // that never had anything to do may be there to copy a variable, one that
      // waits for others lets its users wait.
      const Output cast = node->output(0);
      if (node->Is("Cast") && node->control_inputs().empty() &&
          node->input(0).dtype() == cast.dtype() &&
          declared_.at({node, 0}) != cast.dtype()) {
        replaced_[cast] = node->input(0);
      }
    }
    graph_.Renumber(new_order_);
    return {};
  }

 private:
  struct Place {
    bool fed = false;        // an operand comes in half
    bool of_halves = false;  // so do all but constants and weights
    bool wanted = false;     // a result goes to a node that prefers half
  };

  // Whether the rule allows it, the operands are float32 and half is a type of
  // the op.
  bool MayBeHalf(const Node& node) const {
    if (node.op().half == HalfRule::kFloat32 || NumberBeyond(node)) {
      return false;
    }
    for (const TypeVar& var : node.op().types) {
      if (std::string_view(var.name) == "T" && !var.allowed.Contains(half_)) {
        return false;
      }
    }
    bool any = false;
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (!InputIsT(node, i)) continue;
      any = true;
      if (node.input(i).dtype() != DType::kFloat32) return false;
      // A product is of halves in any case.
      if (node.op().half != HalfRule::kPrefer &&
          beyond_.contains(&node.input(i).node())) {
        return false;
      }
    }
    return any;
  }

  // Finds the nodes whose results are of the size of a number that half cannot
  // hold: it is an operand, or all operands but constants are such results.
  void FindBeyond() {
    for (const Node* node : order_) {
      if (node->op().half == HalfRule::kPrefer) continue;
      const std::optional<double> own = NumberBeyond(*node);
      std::optional<double> passed_on;
      bool others = false;
      for (const Output& x : node->inputs()) {
        if (x.dtype() != DType::kFloat32 || x.node().IsConstant()) continue;
        const auto found = beyond_.find(&x.node());
        if (found == beyond_.end()) {
          others = true;
        } else if (!passed_on) {
          passed_on = SizeAfter(*node, found->second);
        }
      }
      if (own) {
        beyond_.emplace(node, *own);
      } else if (passed_on && !others && !HoldsNumber(*passed_on)) {
        beyond_.emplace(node, *passed_on);
      }
    }
  }

  // Of what a node makes of a result of that size.
  static double SizeAfter(const Node& node, double size) {
    if (node.Is("Sqrt")) return std::sqrt(size);
    if (node.Is("Rsqrt")) return 1 / std::sqrt(size);
    if (node.Is("Reciprocal")) return 1 / size;
    return size;
  }

  // One that a node computes with, a constant operand or an attribute, and that
  // half does not hold.
  std::optional<double> NumberBeyond(const Node& node) const {
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (InputIsT(node, i) && !Holds(node.input(i))) {
        return ConstantValue(node.input(i))->At(0);
      }
    }
    for (const AttrDef& def : node.op().attrs) {
      if (def.type != AttrType::kNumber) continue;
      // As a bound, or around what is pooled, infinity is as good.
      const double exact = node.attrs().NumberOf(def.name).real();
      if (exact != 0 && Rounded(exact) == 0) return exact;
    }
    return std::nullopt;
  }

  // False for a number, or a tensor of one number again and again, that half
  // would take for 0 or infinity, such as an epsilon or the -1e9 of a mask, or
  // has few digits of, as float16 of most below 4e-6.
  bool Holds(const Output& x) const {
    const Tensor* const value = ConstantValue(x);
    if (value == nullptr || value->dtype() != DType::kFloat32 ||
        value->elements() == 0 || HoldsNumber(value->At(0))) {
      return true;
    }
    const auto numbers = value->values<float>();
    return std::any_of(numbers.begin(), numbers.end(),
                       [&](float number) { return number != numbers[0]; });
  }
  bool HoldsNumber(double exact) const { return IsNear(Rounded(exact), exact); }
  bool HoldsEach(const Tensor& value) const {
    const Tensor rounded = value.Cast(half_);
    for (int64_t i = 0; i < value.elements(); ++i) {
      if (!IsNear(rounded.At(i), value.At(i))) return false;
    }
    return true;
  }
  static bool IsNear(double rounded, double exact) {
    if (!std::isfinite(exact)) return !std::isfinite(rounded);
    // Normal numbers of bfloat16 are off by up to 1/512.
    return std::abs(rounded - exact) <= std::abs(exact) / 256;
  }
  double Rounded(double exact) const {
    return Tensor::Scalar(exact).Cast(half_).At(0);
  }

  // Whether the node divides by numbers, or multiplies or divides one, of which
  // nobody knows before the step runs whether half holds them. Factors and
  // dividends of many elements are let in: gates and normalisations are made of
  // those. To be asked of a node when it is known which of its producers are
  // fed.
  bool ScalesByUnknown(const Node& node) const {
    if (half_ != DType::kFloat16) return false;  // bfloat16 has float32's range
    const auto is_unknown = [&](const Output& x) {
      return x.shape().elements() == 1 && !IsOfHalves(x);
    };
    if (node.Is("Div")) {
      if (is_unknown(node.input(0))) return true;
      const Output& divisor = node.input(1);
      const Tensor* const value = ConstantValue(divisor);
      return value == nullptr ? !MadeOfHalves(divisor) : !HoldsEach(*value);
    }
    return node.Is("Mul") &&
           std::any_of(node.inputs().begin(), node.inputs().end(), is_unknown);
  }

  // Whether x is about as good in half: a half already, with all that it is
  // made of; a weight, which is rounded for products, too; or a constant, which
  // MayBeHalf looks at.
  bool IsOfHalves(const Output& x) const {
    return x.node().IsConstant() || IsWeight(x) || MadeOfHalves(x);
  }
  bool MadeOfHalves(const Output& x) const {
    const auto it = may_.find(&x.node());
    return it != may_.end() && OutputIsT(x.node(), x.index()) &&
           (x.node().op().half == HalfRule::kPrefer || it->second.of_halves);
  }
  // Others may hold any number, such as a loss scale.
  static bool IsWeight(const Output& x) {
    const Node& root = ViewRoot(x).node();
    return root.IsVariable() && root.attrs().Bool("trainable");
  }

  // The parts of tensors that others alone read.
  void FindLeaving() {
    for (const Node* node : order_) {
      if (node->Is("Slice") && may_.contains(node)) leaving_.insert(node);
    }
    std::set<const Node*> read;
    for (const Node* node : order_) {
      for (const Output& input : node->inputs()) {
        read.insert(&input.node());
        if (input.node().device() == node->device()) {
          leaving_.erase(&input.node());
        }
      }
    }
    std::erase_if(leaving_,
                  [&](const Node* node) { return !read.contains(node); });
  }

  // Of a node, when it is known of its producers (in_half_).
  bool InHalf(const Node& node) const {
    const auto it = may_.find(&node);
    if (it == may_.end()) return false;
    if (leaving_.contains(&node)) {
      const Output& whole = node.input(0);
      return OutputIsT(whole.node(), whole.index()) &&
             in_half_.contains(&whole.node());
    }
    return node.op().half == HalfRule::kPrefer ||
           (it->second.fed && it->second.wanted);
  }

  // Calls fn for the nodes, and their places, whose results of type T are the
  // node's operands of type T, where both may be half.
  template <typename Fn>
  void ForProducers(const Node& node, Fn fn) {
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Output& x = node.input(i);
      const auto from = may_.find(&x.node());
      if (from != may_.end() && InputIsT(node, i) &&
          OutputIsT(x.node(), x.index())) {
        fn(x.node(), from->second);
      }
    }
  }

  void Decide() {
    for (const Node* node : order_) {
      const auto it = may_.find(node);
      if (it == may_.end()) continue;
      if (ScalesByUnknown(*node)) {
        may_.erase(it);
        continue;
      }
      ForProducers(*node, [&](const Node& producer, const Place& place) {
        it->second.fed |= producer.op().half == HalfRule::kPrefer || place.fed;
      });
      bool of_halves = it->second.fed;
      for (int i = 0; i < node->num_inputs(); ++i) {
        of_halves &= !InputIsT(*node, i) || IsOfHalves(node->input(i));
      }
      it->second.of_halves = of_halves;
    }
    for (size_t n = order_.size(); n-- > 0;) {
      const auto it = may_.find(order_[n]);
      if (it == may_.end()) continue;
      if (order_[n]->op().half != HalfRule::kPrefer && !it->second.wanted) {
        continue;
      }
      ForProducers(*order_[n],
                   [](const Node&, Place& place) { place.wanted = true; });
    }
  }

  Output Replaced(const Output& output) const {
    const auto it = replaced_.find(output);
    return it == replaced_.end() ? output : it->second;
  }

  // The tensor in another dtype, for a node that stands next in the new order.
  Output As(const Output& x, DType dtype, const Node& user) {
    if (x.dtype() == dtype) return x;
    // Half that was widened: what it was is still there, unless it is a
    // variable, whose value may be another by now. A Cast that waits for others
    // lets the user wait.
    if (x.node().Is("Cast") && x.dtype() == DType::kFloat32 &&
        x.node().input(0).dtype() == dtype &&
        x.node().control_inputs().empty() && !IsVariable(x.node().input(0))) {
      return x.node().input(0);
    }
    if (dtype == half_ && JoinsOthers(x.node())) return JoinedHalves(x);
    // Half crosses between devices: it has fewer bytes.
    const std::string& device =
        dtype == half_ ? x.node().device() : user.device();
    // The user reads what they wrote, and so must what reads for it.
    const std::vector<Node*> writers = writes_.Before(x, user);
    Output& cast = casts_[{x, dtype, device, writers}];
    if (cast.valid()) return cast;
    cast = NewCast(x, dtype, device);
    for (Node* writer : writers) cast.node().AddControlInput(writer);
    return cast;
  }

  // Whether the node joins tensors of other devices.
  static bool JoinsOthers(const Node& node) {
    return node.Is("Concat") &&
           std::any_of(node.inputs().begin(), node.inputs().end(),
                       [&](const Output& part) {
                         return part.node().device() != node.device();
                       });
  }

  Output JoinedHalves(const Output& x) {
    const Node& join = x.node();
    Output& joined = casts_[{x, half_, join.device(), {}}];
    if (joined.valid()) return joined;
    std::vector<Output> halves;
    for (const Output& part : join.inputs()) {
      halves.push_back(As(part, half_, join));
    }
    const std::string name =
        graph_.UniqueName(fmt::format("{}/{}", join.name(), NameOf(half_)));
    Node& node = graph_.AddRaw(name, name, join.op(), join.attrs(),
                               std::move(halves), {{half_, x.shape()}});
    node.set_device(join.device());
    node.set_location(join.location());
    node.set_control_inputs(join.control_inputs());
    new_order_.push_back(&node);
    joined = node.output(0);
    return joined;
  }

  Output NewCast(const Output& x, DType dtype, const std::string& device) {
    const TensorType type = {dtype, x.shape()};
    const std::string name =
        graph_.UniqueName(x.name().substr(0, x.name().find(':')) + "/" +
                          std::string(NameOf(dtype)));
    Node* node;
    if (x.node().IsConstant()) {
      const Tensor value = x.node().attrs().TensorOf("value").Cast(dtype);
      node = &graph_.AddRaw(name, name, OpTable::Global().Get("Const"),
                            {{"value", value}}, {}, {type});
    } else {
      node = &graph_.AddRaw(name, name, OpTable::Global().Get("Cast"),
                            {{"to", dtype}}, {x}, {type});
    }
    node->set_device(device);
    node->set_location(x.node().location());
    new_order_.push_back(node);
    return node->output(0);
  }

  Graph& graph_;
  DType half_;
  std::vector<Node*> order_, new_order_;
  VariableWrites writes_;
  // Half may not hold what these make: numbers of such sizes.
  std::map<const Node*, double> beyond_;
  std::map<const Node*, Place> may_;
  std::set<const Node*> leaving_;  // of these
  std::set<const Node*> in_half_;  // of those before the node at hand
  std::map<std::pair<const Node*, int>, DType> declared_;  // of inputs
  std::map<std::tuple<Output, DType, std::string, std::vector<Node*>>, Output>
      casts_;
  std::map<Output, Output> replaced_;  // Casts that have become none
};

}  // namespace

Status MixPrecision(Graph& graph, DType half) {
  return Mixer(graph, half).Run();
}

}  // namespace sluice::passes
