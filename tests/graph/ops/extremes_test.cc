// Every op of the table at the ends of what it may be given: dimensions of size
// 0, attributes and shape operands at the ends of int64, huge tensors, half
// types through second order. An error is fine, and so is a result of the shape
// that inference promised; a dead process is not.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <set>
#include <utility>

#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "graph/traversal.h"
#include "tests/support/apart.h"
#include "tests/support/guarded_run.h"
#include "tests/support/op_probe.h"

namespace sluice::testing {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kEnds[] = {kMin,
                             -(int64_t{1} << 62),
                             -(int64_t{1} << 31) - 1,
                             -1,
                             0,
                             (int64_t{1} << 31) - 1,
                             (int64_t{1} << 31) + 1,
                             (int64_t{1} << 53) + 1,
                             int64_t{1} << 61,
                             (int64_t{1} << 62) + 1,
                             kMax};
// What is run, not only planned.
constexpr int64_t kMostBytes = 1 << 20;

using Inputs = FixedList<ProbeInput, 12>;

// What the node and its gradients, where it has some, are; nothing where they
// are too large to be more than planned.
std::vector<Tensor> Run(const ProbeCase& c, bool fuse) {
  Outputs fetches;
  for (int i = 0; i < c.node->num_outputs(); ++i) {
    // Nobody reads what is only there in part.
    if (!CounterOf(c.node->output(i)).valid()) {
      fetches.push_back(c.node->output(i));
    }
  }
  const std::vector<Operation> targets = {Operation(c.node)};
  const auto small = [](const Output& o) {
    return o.shape().concrete() &&
           o.type().bytes() < static_cast<size_t>(kMostBytes);
  };
  if (c.node->op().gradient != NotDifferentiable) {
    Outputs ys, xs;
    for (const Output& y : fetches) {
      if (IsFloating(y.dtype())) ys.push_back(y);
    }
    for (const Output& x : c.node->inputs()) {
      if (IsFloating(x.dtype())) xs.push_back(x);
    }
    if (!ys.empty() && !xs.empty()) {
      for (const Output& dx : Gradients(ys, xs)) {
        if (dx.valid()) fetches.push_back(dx);
      }
    }
  }
  const bool planned_only =
      !std::all_of(fetches.begin(), fetches.end(), small) ||
      !std::all_of(c.node->inputs().begin(), c.node->inputs().end(), small);
  SessionOptions options;
  options.fuse = fuse;
  if (planned_only) options.devices = {"/null:0"};
  Session session(*c.graph, options);
  std::vector<Feed> feeds;
  for (int i = 0; i < c.node->num_inputs(); ++i) {
    const Node& input = c.node->input(i).node();
    if (input.Is("Variable") && !planned_only) {
      session.Write(input.output(0), c.values[i]);
    }
    if (input.Is("Placeholder")) {
      feeds.push_back({input.output(0), c.values[i]});
    }
  }
  if (!planned_only) return session.Run(feeds, fetches, targets);
  std::vector<FeedShape> shapes;
  for (const Feed& f : feeds) shapes.push_back({f.output, f.output.shape()});
  session.Prepare(shapes, fetches, targets);
  return {};
}

// Errors are a fine answer, if they are the user's and not ours. What is run is
// about the same fused and not: a plain step rounds every half, and gradients
// that are 0 by theory (softmax's of equal dy) are what rounding leaves.
Verdict Outcome(const OpDef& op, const Probe& probe,
                const TypeBinding& binding) {
  try {
    const auto fused = Run(MakeProbeCase(op, probe, binding), true);
    const auto plain = Run(MakeProbeCase(op, probe, binding), false);
    const bool random = op.stateful && op.mutates == 0;
    const Allowance allowance = {.relative = 0.05, .absolute = 0.05};
    return {random ? "" : Difference(fused, plain, allowance)};
  } catch (const Error& error) {
    if (error.code() == Code::kInternal) return {error.what()};
    return {"", true};
  } catch (const std::exception& error) {
    return {std::string("threw ") + error.what()};
  }
}

std::vector<TypeBinding> Bindings(const OpDef& op) {
  std::vector<TypeBinding> bindings = {WidestBinding(op)};
  for (const TypeBinding& binding : OtherBindings(op)) {
    const auto t = binding.find("T");
    if (t != binding.end() &&
        (t->second == DType::kFloat32 || t->second == DType::kFloat16 ||
         t->second == DType::kInt32)) {
      bindings.push_back(binding);
    }
  }
  return bindings;
}

void AddCase(const OpDef& op, const Probe& probe, const std::string& what,
             const std::vector<TypeBinding>& bindings,
             std::vector<Case>* cases) {
  for (const TypeBinding& binding : bindings) {
    cases->push_back(
        {fmt::format("{} ({}), {}", op.name, ToString(binding), what),
         [&op, probe, binding] { return Outcome(op, probe, binding); }});
  }
}

void AddSize(const OpDef& op, const Probe& probe, int64_t to,
             const std::vector<TypeBinding>& bindings,
             std::vector<Case>* cases) {
  for (const ResizedProbe& resized : Resized(op, probe, to)) {
    AddCase(op, resized.probe, resized.what, bindings, cases);
  }
}

// Every integer attribute, and every element of a shape operand, at the ends.
// `where`: what the probe is, before what is changed.
void AddEnds(const OpDef& op, const Probe& probe, const std::string& where,
             std::vector<Case>* cases) {
  const std::vector<TypeBinding> widest = {WidestBinding(op)};
  const auto with = [&](const char* name, const AttrLiteral& value) {
    Probe changed = probe;
    std::vector<AttrSetting> attrs;
    for (const AttrSetting& attr : probe.attrs) {
      if (std::string_view(attr.name) != name) attrs.push_back(attr);
    }
    attrs.push_back({name, value});
    changed.attrs = {attrs.data(), static_cast<int>(attrs.size())};
    return changed;
  };
  for (const AttrDef& attr : op.attrs) {
    AttrLiteral given = attr.fallback;
    for (const AttrSetting& setting : probe.attrs) {
      if (std::string_view(setting.name) == attr.name) given = setting.value;
    }
    for (const int64_t end : kEnds) {
      if (attr.type == AttrType::kInt) {
        AddCase(op, with(attr.name, end),
                fmt::format("{}{} = {}", where, attr.name, end), widest, cases);
      }
      for (int i = 0; attr.type == AttrType::kInts && i < given.ints.size();
           ++i) {
        Ints ints = given.ints;
        Replace(&ints, i, end);
        AddCase(op, with(attr.name, ints),
                fmt::format("{}{}[{}] = {}", where, attr.name, i, end), widest,
                cases);
      }
    }
  }
  for (int i = 0; i < probe.inputs.size(); ++i) {
    if (!IsShapeOperand(op, probe, i)) continue;
    for (int v = 0; v < probe.inputs[i].values.size(); ++v) {
      for (const int64_t end : kEnds) {
        Probe changed = probe;
        ProbeInput input = changed.inputs[i];
        // The nearest double below, so that the cast back is exact.
        Replace(&input.values, v,
                static_cast<double>(end == kMax ? kMax - 1023 : end));
        Replace(&changed.inputs, i, input);
        AddCase(op, changed,
                fmt::format("{}input {}[{}] = {}", where, i, v, end), widest,
                cases);
      }
    }
  }
}

// At most this share of the cases may be refused.
void CheckAll(const std::vector<Case>& cases, double refused) {
  CHECK(cases.size() > 1000);
  const ApartResult result = RunApart(cases);
  std::string text;
  for (size_t i = 0; i < result.faults.size() && i < 40; ++i) {
    text += "\n    " + result.faults[i];
  }
  CHECK_MESSAGE(result.faults.empty(), result.faults.size()
                                           << " of " << cases.size() << text);
  CHECK(static_cast<double>(result.refused) <=
        refused * static_cast<double>(cases.size()));
  MESSAGE(cases.size() << " cases, " << result.refused << " refused");
}

template <typename Add>
std::vector<Case> CasesOfAllProbes(Add add) {
  std::vector<Case> cases;
  for (const OpDef* op : OpTable::Global().All()) {
    if (!NeedsProbe(*op)) continue;
    for (const Probe& probe : op->probes) add(*op, probe, &cases);
  }
  return cases;
}

TEST_CASE("dimensions of size 0") {
  const std::vector<Case> cases =
      CasesOfAllProbes([](const OpDef& op, const Probe& probe, auto* into) {
        AddSize(op, probe, 0, Bindings(op), into);
      });
  CheckAll(cases, 0.5);
}

// Planned for a device that does not compute, or refused.
TEST_CASE("dimensions that nothing can hold") {
  const std::vector<Case> cases =
      CasesOfAllProbes([](const OpDef& op, const Probe& probe, auto* into) {
        for (const int64_t size :
             {(int64_t{1} << 31) + 1, (int64_t{1} << 62) + 1}) {
          AddSize(op, probe, size, {WidestBinding(op)}, into);
        }
      });
  CheckAll(cases, 0.85);
}

TEST_CASE("attributes and shape operands at the ends of int64") {
  const std::vector<Case> cases =
      CasesOfAllProbes([](const OpDef& op, const Probe& probe, auto* into) {
        AddEnds(op, probe, "", into);
      });
  CheckAll(cases, 0.8);
}

TEST_CASE("ends of int64 where dimensions are of size 0") {
  std::vector<Case> cases =
      CasesOfAllProbes([](const OpDef& op, const Probe& probe, auto* into) {
        for (const ResizedProbe& resized : Resized(op, probe, 0)) {
          // Dimensions by themselves are tried above.
          if (!resized.what.starts_with("every")) continue;
          AddEnds(op, resized.probe, resized.what + ", ", into);
        }
      });
  const OpDef& tile = OpTable::Global().Get("Tile");
  for (const auto& [shape, multiples] :
       {std::pair{Ints{0, 0}, Ints{int64_t{1} << 32, int64_t{1} << 32}},
        std::pair{Ints{0, 5}, Ints{int64_t{1} << 61, 8}}}) {
    const Probe probe = {.inputs = {{.shape = shape}},
                         .attrs = {{"multiples", multiples}}};
    AddCase(tile, probe, "2^64 tiles of no elements", {WidestBinding(tile)},
            &cases);
  }
  constexpr int64_t kMany = int64_t{1} << 40;
  const FixedList<AttrSetting, 8> overlapping = {
      {"window", Ints{2, 2}}, {"strides", Ints{1, 1}}, {"padding", "SAME"}};
  struct OfNothing {
    const char* op;
    Probe probe;
  };
  const OfNothing of_nothing[] = {
      {"MaxPool",
       {.inputs = {{.shape = {kMany, 1, 1, 0}}}, .attrs = overlapping}},
      {"AvgPool",
       {.inputs = {{.shape = {kMany, 1, 1, 0}}}, .attrs = overlapping}},
      {"BiasAdd", {.inputs = {{.shape = {kMany, 0}}, {.shape = {0}}}}},
      {"TopK", {.inputs = {{.shape = {kMany, 0}}}, .attrs = {{"k", 0}}}},
      {"CumSum", {.inputs = {{.shape = {kMany, 0}}}, .attrs = {{"axis", 1}}}},
      {"CumSum", {.inputs = {{.shape = {0, kMany}}}, .attrs = {{"axis", 0}}}},
      {"BatchMatMul",
       {.inputs = {{.shape = {kMany, 0, 0}}, {.shape = {0, 5}}}}},
      {"DepthwiseConv2D",
       {.inputs = {{.shape = {kMany, 1, 0, 2}}, {.shape = {1, 1, 2, 1}}}}}};
  for (const OfNothing& rows : of_nothing) {
    const OpDef& op = OpTable::Global().Get(rows.op);
    AddCase(op, rows.probe, "2^40 rows of nothing", Bindings(op), &cases);
  }
  CheckAll(cases, 0.9);
}

// --- Half types through second order -----------------------------------------

// First and second derivatives in half, against float64 of the same values.
std::string SecondOrderFault(const OpDef& op, const Probe& probe, DType half) {
  const auto derivatives = [&](DType dtype) {
    TypeBinding binding = WidestBinding(op);
    binding["T"] = dtype;
    const ProbeCase c = MakeProbeCase(op, probe, binding);
    Outputs ys, xs;
    for (int i = 0; i < c.node->num_outputs(); ++i) {
      if (IsFloating(c.node->output_type(i).dtype)) {
        ys.push_back(c.node->output(i));
      }
    }
    for (const Output& x : c.node->inputs()) {
      if (IsFloating(x.dtype())) xs.push_back(x);
    }
    std::vector<Tensor> values;
    if (ys.empty() || xs.empty()) return values;
    Outputs first, all;
    for (const Output& dx : Gradients(ys, xs)) {
      if (dx.valid()) first.push_back(dx);
    }
    all = first;
    if (!first.empty()) {
      for (const Output& ddx : Gradients(first, xs)) {
        if (ddx.valid()) all.push_back(ddx);
      }
    }
    Session session(*c.graph);
    std::vector<Feed> feeds;
    for (int i = 0; i < c.node->num_inputs(); ++i) {
      const Output& x = c.node->input(i);
      if (!x.node().Is("Placeholder")) continue;
      // What half holds, in either.
      const Tensor value = IsFloating(x.dtype())
                               ? c.values[i].Cast(half).Cast(x.dtype())
                               : c.values[i];
      feeds.push_back({x, value});
    }
    return session.Run(feeds, all);
  };
  try {
    const auto got = derivatives(half), wanted = derivatives(DType::kFloat64);
    if (got.size() != wanted.size()) return "derivatives are missing";
    for (size_t k = 0; k < got.size(); ++k) {
      double scale = 0.3;
      for (int64_t i = 0; i < got[k].elements(); ++i) {
        scale = std::max(scale, std::abs(wanted[k].At(i)));
      }
      const double allowed = (half == DType::kFloat16 ? 0.03 : 0.15) * scale;
      for (int64_t i = 0; i < got[k].elements(); ++i) {
        if (!(std::abs(got[k].At(i) - wanted[k].At(i)) <= allowed)) {
          return fmt::format("derivative {}[{}] is {}, in float64 {}", k, i,
                             got[k].At(i), wanted[k].At(i));
        }
      }
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("half types through second order") {
  int tried = 0;
  for (const OpDef* op : OpTable::Global().All()) {
    if (!NeedsProbe(*op) || op->gradient == NotDifferentiable) continue;
    for (const TypeVar& var : op->types) {
      if (std::string_view(var.name) != "T") continue;
      for (DType half : {DType::kFloat16, DType::kBFloat16}) {
        if (!var.allowed.Contains(half)) continue;
        for (const Probe& probe : op->probes) {
          if (HasNonFinite(probe)) continue;
          const std::string fault = SecondOrderFault(*op, probe, half);
          CHECK_MESSAGE(fault.empty(), std::string(op->name)
                                           << " in " << NameOf(half) << ": "
                                           << fault);
          ++tried;
        }
      }
    }
  }
  CHECK(tried > 100);
}

}  // namespace
}  // namespace sluice::testing
