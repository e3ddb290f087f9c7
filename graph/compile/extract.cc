#include "graph/compile/extract.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/parse_number.h"
#include "graph/output_index.h"
#include "graph/passes/passes.h"
#include "graph/pinned_reads.h"
#include "graph/recompute.h"
#include "graph/traversal.h"

namespace sluice {
namespace {

// What a request needs.
std::unordered_set<const Node*> NeededBy(const StepRequest& request) {
  std::vector<const Node*> roots;
  for (const Output& fetch : request.fetches) roots.push_back(&fetch.node());
  for (const Operation& target : request.targets) {
    roots.push_back(&target.node());
  }
  for (const FeedShape& feed : request.feeds) {
    roots.push_back(&feed.output.node());
  }
  return Needed(roots);
}

Status CheckRequest(const Graph& graph, const StepRequest& request) {
  auto check = [&](const Node* node, std::string_view role) -> Status {
    if (node == nullptr) {
      return InvalidArgument(fmt::format("a {} is an empty handle", role));
    }
    if (&node->graph() != &graph) {
      return InvalidArgument(
          fmt::format("{} '{}' belongs to another graph", role, node->name()));
    }
    return {};
  };
  auto check_output = [&](const Output& output,
                          std::string_view role) -> Status {
    SLUICE_RETURN_IF_ERROR(
        check(output.valid() ? &output.node() : nullptr, role));
    return CheckOutputIndex(output.node(), output.index()).WithContext(role);
  };
  std::set<Output> fed;
  for (const FeedShape& feed : request.feeds) {
    const Output& output = feed.output;
    SLUICE_RETURN_IF_ERROR(check_output(output, "feed"));
    if (!fed.insert(output).second) {
      return InvalidArgument(fmt::format(
          "'{}' is fed twice ({})", output.name(), output.node().location()));
    }
    if (!feed.shape.concrete() || !Compatible(output.shape(), feed.shape)) {
      return InvalidArgument(
          fmt::format("feed of '{}': shape {} given, wanted {} ({})",
                      output.name(), feed.shape.ToString(),
                      output.shape().ToString(), output.node().location()));
    }
  }
  for (const Output& fetch : request.fetches) {
    SLUICE_RETURN_IF_ERROR(check_output(fetch, "fetch"));
  }
  for (const Operation& target : request.targets) {
    SLUICE_RETURN_IF_ERROR(
        check(target.valid() ? &target.node() : nullptr, "target"));
  }
  return {};
}

// A feed is a placeholder that is named by its index.
constexpr std::string_view kFeed = "_feed_";

std::string FeedName(int i) {
  return fmt::format("{}{}", kFeed, i);
}
bool IsFeed(const Node& node) {
  return node.IsPlaceholder() && node.name().starts_with(kFeed);
}

// The names that feeds and targets of a step are known by are no other node's.
Status CheckNames(const Graph& graph,
                  const std::unordered_set<const Node*>& needed) {
  for (const auto& node : graph.nodes()) {
    const bool as_feed = node->name().starts_with(kFeed);
    if (!as_feed && node->name() != passes::kTargets) continue;
    if (!needed.contains(node.get())) continue;
    return InvalidArgument(fmt::format(
        "{}: {} a session's own ({})", node->Describe(),
        as_feed ? fmt::format("names that begin with '{}' are", kFeed)
                : fmt::format("the name '{}' is", passes::kTargets),
        node->location()));
  }
  return {};
}

// What `reader` waits for only because it reads what is fed.
bool ReadsOnlyFed(const Node& reader, std::string_view waited,
                  const std::set<Output>& fed) {
  for (const Node* control : reader.control_inputs()) {
    if (control->name() == waited) return false;
  }
  bool reads = false;
  for (const Output& input : reader.inputs()) {
    if (input.node().name() != waited) continue;
    if (!fed.contains(input)) return false;
    reads = true;
  }
  return reads;
}

// The copies that gradients read of variables see what the first readers see
// (PinnedReads), which do not wait for what they would read if it were not fed.
void ReleasePinnedReads(const Graph& graph, const StepRequest& request,
                        Graph& step) {
  std::set<Output> fed;
  for (const FeedShape& feed : request.feeds) fed.insert(feed.output);
  for (const auto& node : step.nodes()) {
    const Node* reader = PinnedReads::ReaderOf(*node, graph);
    if (reader == nullptr) continue;
    std::vector<Node*> controls = node->control_inputs();
    std::erase_if(controls, [&](const Node* control) {
      return ReadsOnlyFed(*reader, control->name(), fed);
    });
    node->set_control_inputs(std::move(controls));
  }
}

// What gradients compute again of an output is fed with it.
void ReplaceRecomputed(Graph& step, const Output& fed, const Output& feed) {
  for (const auto& node : step.nodes()) {
    if (fed.index() < node->num_outputs() && Recomputes(*node, fed.node())) {
      step.ReplaceUses(node->output(fed.index()), feed, /*controls=*/false);
    }
  }
}

// What gradients compute again waits for a gradient only so as not to run
// earlier (Recomputation): not for one that nothing needs since another is fed.
void ReleaseRecomputed(const Graph& graph, Graph& step) {
  std::vector<std::pair<Node*, std::vector<Node*>>> waiting;
  std::vector<const Node*> roots;
  for (const auto& node : step.nodes()) {
    if (node->op().sink || node->name() == passes::kTargets) {
      roots.push_back(node.get());
    }
    const Node* first = graph.Find(node->origin());
    if (first == nullptr || !Recomputes(*node, *first)) continue;
    waiting.emplace_back(node.get(), node->control_inputs());
    node->set_control_inputs({});
  }
  const auto needed = Needed(roots);
  for (auto& [node, controls] : waiting) {
    std::erase_if(controls, [&](const Node* control) {
      return !needed.contains(control);
    });
    node->set_control_inputs(std::move(controls));
  }
}

// Sets the element that `node` stands for. A step read from a file may hold
// any index; there are never more elements than nodes.
Status SetType(const Node& node, int64_t index, const TensorType& type,
               std::vector<TensorType>* types) {
  const auto limit = static_cast<int64_t>(node.graph().nodes().size());
  if (index < 0 || index >= limit) {
    return InvalidArgument(
        fmt::format("{}: its index must be from 0 to {} ({})", node.Describe(),
                    limit - 1, node.location()));
  }
  if (index >= static_cast<int64_t>(types->size())) types->resize(index + 1);
  (*types)[index] = type;
  return {};
}

}  // namespace

Result<std::unique_ptr<Graph>> ExtractStep(const Graph& graph,
                                           const StepRequest& request) {
  SLUICE_RETURN_IF_ERROR(CheckRequest(graph, request));
  const auto needed = NeededBy(request);
  SLUICE_RETURN_IF_ERROR(CheckNames(graph, needed));
  std::unique_ptr<Graph> step =
      graph.Clone([&](const Node& node) { return needed.contains(&node); });
  auto twin = [&](const Output& output) {
    return step->Find(output.node().name())->output(output.index());
  };

  ReleasePinnedReads(graph, request, *step);

  // Fetches first, so that a fetched feed is the fed value like everywhere.
  const OpDef& fetch_op = OpTable::Global().Get("Fetch");
  for (size_t i = 0; i < request.fetches.size(); ++i) {
    const std::string name = step->UniqueName(fmt::format("_fetch_{}", i));
    step->AddRaw(name, name, fetch_op, {{"index", static_cast<int64_t>(i)}},
                 {twin(request.fetches[i])}, {});
  }
  if (!request.targets.empty()) {
    Node& targets = step->AddRaw(std::string(passes::kTargets),
                                 std::string(passes::kTargets),
                                 OpTable::Global().Get("NoOp"), {}, {}, {});
    for (const Operation& target : request.targets) {
      targets.AddControlInput(step->Find(target.node().name()));
    }
  }
  const OpDef& placeholder = OpTable::Global().Get("Placeholder");
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    const Output fed = twin(request.feeds[i].output);
    const TensorType type{fed.dtype(), request.feeds[i].shape};
    // Messages call it what the user does.
    Node& feed = step->AddRaw(
        FeedName(static_cast<int>(i)), fed.name(), placeholder,
        {{"dtype", type.dtype}, {"shape", type.shape}}, {}, {type});
    feed.set_device(fed.node().device());
    // Another node that is fed still runs where it is waited for; a placeholder
    // has nothing to run.
    step->ReplaceUses(fed, feed.output(0), fed.node().IsPlaceholder());
    if (!fed.node().IsPlaceholder()) {
      ReplaceRecomputed(*step, fed, feed.output(0));
    }
  }
  ReleaseRecomputed(graph, *step);
  return step;
}

int64_t FeedIndex(const Node& node) {
  if (!IsFeed(node)) return -1;
  const std::string_view text =
      std::string_view(node.name()).substr(kFeed.size());
  return ParseWhole<int64_t>(text).value_or(-1);
}

Status CheckFed(const Graph& step) {
  for (const auto& node : step.nodes()) {
    if (node->IsPlaceholder() && !IsFeed(*node)) {
      return InvalidArgument(
          fmt::format("{}: it must be fed; add it to the feeds ({})",
                      node->Describe(), node->location()));
    }
    // A step read from a file may say that there are any number.
    const int updates = std::min(node->mutates(), node->num_inputs());
    for (int i = 0; i < updates; ++i) {
      const Node& updated = node->input(i).node();
      if (!IsFeed(updated)) continue;
      return InvalidArgument(fmt::format(
          "feed of '{}': {} updates it, and what is fed cannot be updated ({})",
          updated.origin(), node->Describe(), node->location()));
    }
  }
  return {};
}

Result<std::vector<TensorType>> FeedTypes(const Graph& step) {
  std::vector<TensorType> types;
  for (const auto& node : step.nodes()) {
    if (!IsFeed(*node)) continue;
    SLUICE_RETURN_IF_ERROR(
        SetType(*node, FeedIndex(*node), node->output_type(0), &types));
  }
  return types;
}

Result<std::vector<TensorType>> FetchTypes(const Graph& step) {
  std::vector<TensorType> types;
  for (const auto& node : step.nodes()) {
    if (!node->IsFetch()) continue;
    SLUICE_RETURN_IF_ERROR(SetType(*node, node->attrs().Int("index"),
                                   node->input(0).type(), &types));
  }
  return types;
}

}  // namespace sluice
