#include "graph/compile/cut_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/passes/passes.h"

namespace sluice {
namespace {

// What makes a stage long, in seconds of a core of today: a multiplication and
// its addition, forwards and twice backwards; a byte of a result, which is
// written, and read, and so for its gradient; a byte that crosses, and one of
// its gradient. Their ratios are what counts.
constexpr double kPerMultiplyAdd = 3 / 50e9;
constexpr double kPerByte = 5 / 10e9;
constexpr double kPerByteAcross = 2 / 2.5e9;

double BytesOf(const Output& output) {
  return static_cast<double>(output.type().bytes());
}

double CostOf(const Node& node) {
  double cost = 0;
  if (node.op().multiply_adds != nullptr) {
    cost +=
        static_cast<double>(node.op().multiply_adds(node)) * kPerMultiplyAdd;
  }
  if (node.op().view) return cost;
  for (int i = 0; i < node.num_outputs(); ++i) {
    cost += BytesOf(node.output(i)) * kPerByte;
  }
  return cost;
}

bool Computes(const Node& node) {
  return !node.IsVariable() && !node.IsConstant() && !node.IsPlaceholder() &&
         !node.IsFetch();
}

// What is fused of the ops on both sides of a cut is not: a pass more over what
// crosses, but before an op that reads it more than once anyway.
double CrossingOf(const Output& output, const Node& behind) {
  const bool reads = behind.op().multiply_adds != nullptr;
  return BytesOf(output) * (kPerByteAcross + (reads ? 0 : kPerByte));
}

// The ops of a step in their order, with what they cost.
struct Row {
  std::vector<std::string> names;
  std::vector<double> cost, crossing;
};

Row RowOf(const Graph& step) {
  Row row;
  std::unordered_map<const Node*, size_t> position;
  std::vector<const Node*> nodes;
  std::map<Output, size_t> last_use;
  for (const auto& node : step.nodes()) {
    if (!Computes(*node)) continue;
    for (const Output& input : node->inputs()) {
      if (position.contains(&input.node())) last_use[input] = row.names.size();
    }
    position[node.get()] = row.names.size();
    nodes.push_back(node.get());
    row.names.push_back(node->name());
    row.cost.push_back(CostOf(*node));
  }
  row.crossing.resize(row.names.size() + 1);
  for (const auto& [output, last] : last_use) {
    for (size_t i = position.at(&output.node()) + 1; i <= last; ++i) {
      row.crossing[i] += CrossingOf(output, *nodes[i]);
    }
  }
  return row;
}

// The rest: what is computed of a stage's results is with the last of them, a
// variable or what is fed with the first that uses it.
void PlaceRest(const Graph& graph, std::map<const Node*, size_t>* stages) {
  for (const auto& node : graph.nodes()) {
    if (!Computes(*node) || stages->contains(node.get())) continue;
    for (const Output& input : node->inputs()) {
      const auto found = stages->find(&input.node());
      if (found == stages->end()) continue;
      size_t& stage = (*stages)[node.get()];
      stage = std::max(stage, found->second);
    }
  }
  for (const auto& node : graph.nodes()) {
    const auto user = stages->find(node.get());
    if (user == stages->end() || !Computes(*node)) continue;
    for (const Output& input : node->inputs()) {
      const Node& operand = input.node();
      if (operand.IsVariable() || operand.IsPlaceholder()) {
        stages->emplace(&operand, user->second);
      }
    }
  }
}

}  // namespace

// best[s][i]: the least that the longest of s stages over the first i takes.
std::vector<size_t> BalancedCuts(const std::vector<double>& cost,
                                 const std::vector<double>& crossing,
                                 size_t stages) {
  const size_t n = cost.size();
  std::vector<double> before(n + 1);
  for (size_t i = 0; i < n; ++i) before[i + 1] = before[i] + cost[i];
  std::vector<std::vector<double>> best(
      stages + 1,
      std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(n + 1));
  best[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    for (size_t end = 0; end <= n; ++end) {
      for (size_t begin = 0; begin <= end; ++begin) {
        const double longest =
            std::max(best[s - 1][begin], before[end] - before[begin] +
                                             crossing[begin] + crossing[end]);
        if (longest >= best[s][end]) continue;
        best[s][end] = longest;
        from[s][end] = begin;
      }
    }
  }
  std::vector<size_t> cuts;
  size_t end = n;
  for (size_t s = stages; s > 1; --s) {
    end = from[s][end];
    cuts.push_back(end);
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

Status CutIntoStages(Graph& graph, const Output& loss,
                     const std::vector<FeedShape>& feeds,
                     const std::vector<std::string>& devices) {
  for (const auto& node : graph.nodes()) {
    if (node->device().empty()) continue;
    return InvalidArgument(
        fmt::format("{} is placed on {}: a model that is cut into stages "
                    "places none of its ops ({})",
                    node->Describe(), node->device(), node->location()));
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Graph> step,
                          ExtractStep(graph, {feeds, {loss}, {}}));
  passes::Prune(*step);
  SLUICE_RETURN_IF_ERROR(passes::Refine(*step, FoldNode));
  const Row row = RowOf(*step);
  if (row.names.size() < devices.size()) {
    return InvalidArgument(
        fmt::format("the model has {} ops, too few for {} stages",
                    row.names.size(), devices.size()));
  }
  const std::vector<size_t> cuts =
      BalancedCuts(row.cost, row.crossing, devices.size());
  std::map<const Node*, size_t> stages;
  for (size_t i = 0; i < row.names.size(); ++i) {
    const Node* const node = graph.Find(row.names[i]);
    if (node == nullptr) continue;  // the step's own
    stages[node] = static_cast<size_t>(
        std::upper_bound(cuts.begin(), cuts.end(), i) - cuts.begin());
  }
  PlaceRest(graph, &stages);
  for (const auto& node : graph.nodes()) {
    const auto stage = stages.find(node.get());
    if (stage != stages.end()) node->set_device(devices[stage->second]);
  }
  return {};
}

}  // namespace sluice
