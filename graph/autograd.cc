#include "graph/autograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "engine/semantics/row_ids.h"
#include "graph/ops/array.h"
#include "graph/ops/control.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/shape.h"
#include "graph/pinned_reads.h"
#include "graph/recompute.h"

namespace sluice {
namespace {

using NodeSet = std::unordered_set<const Node*>;

// The nodes of the xs by their second computations, which gradients that were
// built before read in their place: what depends on these depends on the xs.
using Firsts = std::unordered_map<const Node*, Node*>;
Firsts SecondComputations(const Graph& graph, const std::vector<Output>& xs) {
  std::unordered_map<std::string_view, std::set<Node*>> by_origin;
  for (const Output& x : xs) {
    if (x.node().num_inputs() == 0) continue;  // computed again for none
    by_origin[x.node().origin()].insert(&x.node());
  }
  Firsts firsts;
  if (by_origin.empty()) return firsts;
  for (const auto& node : graph.nodes()) {
    const auto same = by_origin.find(node->origin());
    if (same == by_origin.end()) continue;
    for (Node* first : same->second) {
      if (Recomputes(*node, *first)) firsts[node.get()] = first;
    }
  }
  return firsts;
}

// Nodes that some x reaches along floating-point data edges. Ids grow along
// edges in a graph that is being built, so one sweep in id order suffices.
NodeSet DependsOn(const Graph& graph, const std::vector<Output>& xs,
                  const Firsts& firsts) {
  NodeSet reached;
  for (const Output& x : xs) reached.insert(&x.node());
  for (const auto& [second, first] : firsts) reached.insert(second);
  for (const auto& node : graph.nodes()) {
    for (const Output& input : node->inputs()) {
      if (IsFloating(input.dtype()) && reached.contains(&input.node())) {
        reached.insert(node.get());
        break;
      }
    }
  }
  return reached;
}

// Nodes of `within` that compute something some y depends on, in id order.
std::vector<Node*> Leading(const std::vector<Output>& ys,
                           const NodeSet& within) {
  NodeSet wanted;
  for (const Output& y : ys) wanted.insert(&y.node());
  std::vector<Node*> leading;
  const auto& nodes = ys[0].graph().nodes();
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    Node& node = **it;
    if (!wanted.contains(&node) || !within.contains(&node)) continue;
    if (node.num_inputs() == 0) continue;  // variables, placeholders
    leading.push_back(&node);
    for (const Output& input : node.inputs()) wanted.insert(&input.node());
  }
  std::reverse(leading.begin(), leading.end());
  return leading;
}

void CheckSeed(const Output& y, const Output& seed) {
  if (seed.valid() && seed.dtype() == y.dtype() &&
      Compatible(seed.shape(), y.shape())) {
    return;
  }
  throw Error(
      Code::kInvalidArgument,
      fmt::format("the seed of '{}' is {}, wanted {}", y.name(),
                  seed.valid() ? seed.type().ToString() : "an empty Output",
                  y.type().ToString()));
}

// Each of the ys, or xs, is in y 0's graph.
void CheckHandles(std::string_view role, const std::vector<Output>& outputs,
                  const Output& y0) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("Gradients: {} {} is an empty Output: a handle "
                              "that no op returned",
                              role, i));
    }
    if (&outputs[i].graph() != &y0.graph()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("Gradients: {} {}, '{}', belongs to another "
                              "graph than '{}'",
                              role, i, outputs[i].name(), y0.name()));
    }
  }
}

// The sum of what the users of one output send back, in one pass over memory.
Output Sum(const std::vector<Output>& terms) {
  return terms.size() == 1   ? terms[0]
         : terms.size() == 2 ? Add(terms[0], terms[1])
                             : AddN(terms);
}

// Those of `tables` of whose gradients rows say all.
std::set<Output> ReadByRows(const std::vector<Output>& ys,
                            const std::vector<Output>& tables,
                            const std::vector<Node*>& leading) {
  std::set<Output> by_rows;
  for (const Output& x : tables) {
    // Of half types slices would have to be summed in another one.
    if (x.node().IsVariable() && x.shape().elements() > 0 &&
        kFloatDouble.Contains(x.dtype())) {
      by_rows.insert(x);
    }
  }
  for (const Output& y : ys) by_rows.erase(y);
  for (const Node* node : leading) {
    const RowsTakenFn rows_taken = node->op().rows_taken;
    for (int i = 0; i < node->num_inputs(); ++i) {
      const bool takes_rows =
          i == 0 && rows_taken != nullptr && rows_taken(*node).valid();
      if (!takes_rows) by_rows.erase(node->input(i));
    }
  }
  return by_rows;
}

// All of them as one. The slices of each are summed before, as they are where
// each is added to zeros of the table's shape. Those of a row are added one to
// another then, as whole gradients are: there are at most kSlicesRun.
RowsGradient JoinRows(const std::vector<RowsGradient>& parts,
                      int64_t rows_of_x) {
  if (parts.size() == 1) return parts[0];
  std::vector<Output> values, rows;
  const auto add = [&](const RowsGradient& part) {
    const SumRowsOutputs sums = SumRows(part.rows, part.values, rows_of_x);
    Shape slices = part.values.shape();
    slices = slices.Slice(part.rows.shape().rank(), slices.rank());
    Shape flat{-1};
    for (int64_t d : slices) flat.push_back(d);
    values.push_back(Reshape(sums.sums, flat));
    rows.push_back(Cast(Reshape(sums.rows, {-1}), DType::kInt64));
  };
  for (const RowsGradient& part : parts) {
    if (static_cast<int64_t>(values.size()) == kSlicesRun) {
      const RowsGradient before = {Concat(values, 0), Concat(rows, 0)};
      values.clear();
      rows.clear();
      add(before);
    }
    add(part);
  }
  return {Concat(values, 0), Concat(rows, 0)};
}

}  // namespace

std::vector<Output> Gradients(const std::vector<Output>& ys,
                              const std::vector<Output>& xs,
                              const std::vector<Output>& seeds,
                              const GradientOptions& options) {
  std::vector<Output> gradients;
  for (RowsGradient& gradient : GradientsByRows(ys, xs, {}, seeds, options)) {
    gradients.push_back(gradient.values);
  }
  return gradients;
}

std::vector<RowsGradient> GradientsByRows(const std::vector<Output>& ys,
                                          const std::vector<Output>& xs,
                                          const std::vector<Output>& tables,
                                          const std::vector<Output>& seeds,
                                          const GradientOptions& options) {
  if (ys.empty() || xs.empty()) return std::vector<RowsGradient>(xs.size());
  CheckHandles("y", ys, ys[0]);
  CheckHandles("x", xs, ys[0]);
  if (!seeds.empty() && seeds.size() != ys.size()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} seeds for {} outputs to differentiate",
                            seeds.size(), ys.size()));
  }
  Graph& graph = ys[0].graph();
  NameScope scope(graph, "gradients");
  const Firsts firsts = SecondComputations(graph, xs);
  const NodeSet on_path = DependsOn(graph, xs, firsts);
  const std::vector<Node*> leading = Leading(ys, on_path);

  const std::set<Output> by_rows =
      tables.empty() ? std::set<Output>() : ReadByRows(ys, tables, leading);
  std::map<Output, std::vector<RowsGradient>> row_terms;
  std::map<Output, std::vector<Output>> terms;  // by output differentiated
  for (size_t i = 0; i < ys.size(); ++i) {
    if (!IsFloating(ys[i].dtype())) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("cannot differentiate '{}': it is {}, wanted a "
                              "floating-point tensor",
                              ys[i].name(), NameOf(ys[i].dtype())));
    }
    if (i < seeds.size()) CheckSeed(ys[i], seeds[i]);
    terms[ys[i]].push_back(i < seeds.size() ? seeds[i] : OnesLike(ys[i]));
  }
  // The seeds may wait for writes, too. What the scope around this waits for a
  // node made here does, such as a seed of ones.
  std::vector<Output> given = ys;
  for (const auto& [y, seeds_of_y] : terms) {
    given.insert(given.end(), seeds_of_y.begin(), seeds_of_y.end());
  }
  if (!seeds.empty()) given.push_back(Identity(ys[0]));
  PinnedReads pinned(given);
  std::optional<Recomputation> recomputation;
  if (options.recompute != Recompute::kNone) {
    recomputation.emplace(leading, options.recompute, pinned);
  }
  auto total = [&](const Output& output) {
    auto it = terms.find(output);
    if (it == terms.end()) return Output();
    it->second = {Sum(it->second)};
    return it->second[0];
  };

  // Backwards from the last node; those added meanwhile are gradients.
  std::vector<Node*> order;
  for (const auto& node : graph.nodes()) order.push_back(node.get());
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    Node& node = **it;
    if (!on_path.contains(&node)) continue;
    LocationScope location(graph, node.location());
    DeviceScope device(graph, node.device());
    Outputs dy(node.num_outputs());
    bool any = false;
    for (int i = 0; i < node.num_outputs(); ++i) {
      dy[i] = total(node.output(i));
      any |= dy[i].valid();
    }
    if (!any || node.num_inputs() == 0) continue;
    // The first is still to come: it is the older one.
    if (const auto first = firsts.find(&node); first != firsts.end()) {
      for (int i = 0; i < node.num_outputs(); ++i) {
        if (dy[i].valid()) terms[first->second->output(i)].push_back(dy[i]);
      }
      continue;
    }
    bool useful = false;
    for (const Output& input : node.inputs()) {
      useful |= on_path.contains(&input.node()) && IsFloating(input.dtype());
    }
    if (!useful) continue;
    if (node.op().gradient == nullptr) {
      throw Error(Code::kUnimplemented,
                  fmt::format("{}: the op has no gradient rule ({})",
                              node.Describe(), node.location()));
    }
    const Output& first = *std::find_if(
        dy.begin(), dy.end(), [](const Output& d) { return d.valid(); });
    const Node& seen = recomputation ? recomputation->Twin(node, first) : node;
    NameScope inner(graph, node.name());
    if (by_rows.contains(node.input(0))) {
      Outputs rows = {node.op().rows_taken(seen)};
      pinned.Pin(node, graph.nodes().size(), &rows);
      row_terms[node.input(0)].push_back({dy[0], rows[0]});
      continue;
    }
    (void)pinned.InputsOf(node);  // before what reads them
    const size_t begin = graph.nodes().size();
    Outputs dx = node.op().gradient(seen, dy);
    pinned.Pin(node, begin, &dx);
    SLUICE_CHECK(static_cast<int>(dx.size()) == node.num_inputs());
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Output& input = node.input(i);
      if (!dx[i].valid() || !IsFloating(input.dtype())) continue;
      if (!Compatible(dx[i].shape(), input.shape())) {
        throw Error(Code::kInternal,
                    fmt::format("{}: its gradient for input {} has shape {}, "
                                "the input {}",
                                node.Describe(), i, dx[i].shape().ToString(),
                                input.shape().ToString()));
      }
      if (on_path.contains(&input.node())) terms[input].push_back(dx[i]);
    }
  }
  if (recomputation) recomputation->Finish();
  std::vector<RowsGradient> gradients;
  for (const Output& x : xs) {
    const auto rows = row_terms.find(x);
    if (rows == row_terms.end()) {
      gradients.push_back({total(x)});
      continue;
    }
    DeviceScope device(graph, x.node().device());
    gradients.push_back(JoinRows(rows->second, x.shape()[0]));
  }
  return gradients;
}

std::vector<Output> GradientsOrZeros(const std::vector<Output>& ys,
                                     const std::vector<Output>& xs) {
  std::vector<Output> gradients = Gradients(ys, xs);
  for (size_t i = 0; i < xs.size(); ++i) {
    if (!gradients[i].valid()) gradients[i] = ZerosLike(xs[i]);
  }
  return gradients;
}

}  // namespace sluice
