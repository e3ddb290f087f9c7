#include "graph/compile/step_part.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <set>
#include <utility>

#include "engine/catch_errors.h"
#include "engine/semantics/random.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/compile/extract.h"
#include "graph/text/text.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 4> kExecutors = {"auto", "serial",
                                                        "dataflow", "checked"};

Result<ExecutorMode> ParseExecutor(const std::string& name) {
  for (size_t i = 0; i < kExecutors.size(); ++i) {
    if (kExecutors[i] == name) return static_cast<ExecutorMode>(i);
  }
  return InvalidArgument(fmt::format("there is no executor '{}'", name));
}

Result<StepSettings> ReadSettings(const JsonObject& json) {
  StepSettings settings;
  SLUICE_ASSIGN_OR_RETURN(settings.deterministic, json.Bool("deterministic"));
  SLUICE_ASSIGN_OR_RETURN(const std::string precision,
                          json.String("precision"));
  SLUICE_ASSIGN_OR_RETURN(settings.precision, ParsePrecision(precision));
  SLUICE_ASSIGN_OR_RETURN(const std::string executor, json.String("executor"));
  SLUICE_ASSIGN_OR_RETURN(settings.executor, ParseExecutor(executor));
  SLUICE_ASSIGN_OR_RETURN(settings.seed, json.Unsigned("seed"));
  return settings;
}

constexpr int kMost = 1 << 20;  // more feeds and edges than any step has
// Its constants in it, which are variables' business where they are large.
constexpr size_t kMostText = size_t{256} << 20;

bool HasEdge(const Node& node) {
  return node.IsSend() || node.IsReceive();
}

// From `least` up to kMost.
Result<int> ReadCount(const JsonObject& json, const char* name, int64_t least) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, json.Int(name));
  if (count >= least && count <= kMost) return static_cast<int>(count);
  return InvalidArgument(fmt::format("no step has {} {}", count, name));
}

// The first line of a part's text: all but its graph.
Result<StepPart> ReadHead(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  StepPart part;
  SLUICE_ASSIGN_OR_RETURN(part.device, json.String("device"));
  SLUICE_ASSIGN_OR_RETURN(part.incarnation, json.Unsigned("incarnation"));
  SLUICE_ASSIGN_OR_RETURN(part.edges, ReadCount(json, "edges", 0));
  SLUICE_ASSIGN_OR_RETURN(part.parts, ReadCount(json, "parts", 1));
  SLUICE_ASSIGN_OR_RETURN(part.settings, ReadSettings(json));
  return part;
}

Status CheckNumber(const Node& node, const char* what, int64_t number,
                   int end = kMost) {
  if (number >= 0 && number < end) return {};
  return InvalidArgument(
      fmt::format("{}: {} is no {}", node.Describe(), number, what));
}

// What Compile relies on and PartitionStep sees to.
Status CheckPart(const StepPart& part) {
  SLUICE_RETURN_IF_ERROR(passes::Verify(*part.graph));
  std::set<std::pair<int64_t, bool>> started;  // edges, and whether it sends
  for (const auto& node : part.graph->nodes()) {
    for (const TensorType& type : node->output_types()) {
      if (!type.shape.concrete()) {
        return InvalidArgument(fmt::format("{}: its shape {} is not concrete",
                                           node->Describe(),
                                           type.shape.ToString()));
      }
    }
    Status known;
    if (node->IsPlaceholder()) {
      known = CheckNumber(*node, "feed", FeedIndex(*node));
    } else if (node->IsFetch()) {
      known = CheckNumber(*node, "fetch", node->attrs().Int("index"));
    } else if (HasEdge(*node)) {
      const int64_t edge = node->attrs().Int("edge");
      known = CheckNumber(*node, "edge", edge, part.edges);
      const bool start = node->op().wait != nullptr;
      if (start && !started.emplace(edge, node->IsSend()).second) {
        known = InvalidArgument(fmt::format("{}: edge {} is another's, too",
                                            node->Describe(), edge));
      }
    }
    SLUICE_RETURN_IF_ERROR(known);
  }
  return {};
}

// Numbers the tensors that are sent and says between whom, for both of their
// ends, so that a part needs to know of no other. Returns how many there are.
// The key of each gets a mark of all of them: peers, who cut the step each for
// itself, have the same keys only where they send each other the same. (The
// rest of a step may say who is who.)
int NumberEdges(const passes::Partitions& parts,
                const DeviceDescriptions& devices) {
  struct Ends {
    int64_t number;
    int64_t sender = 0, receiver = 0;
    std::string type = {};
  };
  std::map<std::string, Ends> edges;
  for (const auto& [device, part] : parts) {
    const DeviceDescription* described = FindDevice(devices, device);
    const auto incarnation =
        static_cast<int64_t>(described ? described->incarnation : 0);
    for (const auto& node : part->nodes()) {
      if (!HasEdge(*node)) continue;
      const auto number = static_cast<int64_t>(edges.size());
      const std::string& key = node->attrs().String("key");
      Ends& ends = edges.emplace(key, Ends{number}).first->second;
      (node->IsSend() ? ends.sender : ends.receiver) = incarnation;
      if (node->op().wait != nullptr && node->IsSend()) {
        ends.type = node->input(0).type().ToString();
      }
    }
  }
  std::string all;
  for (const auto& [key, ends] : edges) {
    all += fmt::format("{} {} {}\n", ends.number, ends.type, key);
  }
  const std::string mark = fmt::format(";{:x}", HashName(all));
  for (const auto& [device, part] : parts) {
    for (const auto& node : part->nodes()) {
      if (!HasEdge(*node)) continue;
      std::string key = node->attrs().String("key");
      const Ends& ends = edges.at(key);
      key.insert(key.rfind(';'), mark);  // before the node's name
      node->set_attr("key", key);
      node->set_attr("edge", ends.number);
      node->set_attr("sender", ends.sender);
      node->set_attr("receiver", ends.receiver);
    }
  }
  return static_cast<int>(edges.size());
}

}  // namespace

std::string PrintPart(const StepPart& part) {
  const Json json = {
      {"device", part.device},
      {"incarnation", part.incarnation},
      {"edges", part.edges},
      {"parts", part.parts},
      {"deterministic", part.settings.deterministic},
      {"precision", NameOf(part.settings.precision)},
      {"executor", kExecutors[static_cast<size_t>(part.settings.executor)]},
      {"seed", part.settings.seed}};
  return json.Text() + "\n" + PrintGraph(*part.graph);
}

Result<StepPart> ParsePart(std::string_view text) {
  if (text.size() > kMostText) {
    return InvalidArgument(fmt::format(
        "no part of a step: {} bytes of text, of at most {}; large constants "
        "are better variables",
        text.size(), kMostText));
  }
  const size_t line = text.find('\n');
  if (line == text.npos) {
    return InvalidArgument("no part of a step: its graph is missing");
  }
  Result<StepPart> part = ReadHead(text.substr(0, line));
  SLUICE_RETURN_IF_ERROR(part.status().WithContext("no part of a step"));
  SLUICE_ASSIGN_OR_RETURN(part->graph, ParseGraph(text.substr(line + 1)));
  SLUICE_RETURN_IF_ERROR(CheckPart(*part));
  return part;
}

Result<StepParts> PartitionStep(std::unique_ptr<Graph> step,
                                const passes::Context& context,
                                const StepSettings& settings) {
  StepParts cut;
  // Before pruning, which may drop feeds that nothing reads.
  SLUICE_ASSIGN_OR_RETURN(cut.feed_types, FeedTypes(*step));
  passes::Prune(*step);
  SLUICE_RETURN_IF_ERROR(CheckFed(*step));
  SLUICE_RETURN_IF_ERROR(passes::RunPipeline(*step, context, &cut.passes));
  SLUICE_ASSIGN_OR_RETURN(cut.fetch_types, FetchTypes(*step));
  passes::Partitions parts;
  SLUICE_RETURN_IF_ERROR(
      CatchErrors([&] { parts = passes::Partition(*step, context.devices); }));
  SLUICE_RETURN_IF_ERROR(passes::Verify(parts).WithContext("after partition"));
  const int edges = NumberEdges(parts, context.devices);
  for (auto& [device, graph] : parts) {
    const DeviceDescription* described = FindDevice(context.devices, device);
    cut.parts.push_back({device, described ? described->incarnation : 0, edges,
                         static_cast<int>(parts.size()), settings,
                         std::move(graph)});
  }
  return cut;
}

}  // namespace sluice
