#include "graph/compile/step_part.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "graph/compile/extract.h"
#include "graph/text/text.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kExecutors = {"auto", "serial",
                                                        "dataflow", "checked"};

Result<ExecutorMode> ParseExecutor(const std::string& name) {
  for (size_t i = 0; i < kExecutors.size(); ++i) {
    if (kExecutors[i] == name) return static_cast<ExecutorMode>(i);
  }
  return InvalidArgument(fmt::format("there is no executor '{}'", name));
}

Result<StepSettings> ReadSettings(const Json& json) {
  StepSettings settings;
  settings.deterministic = json.at("deterministic").get<bool>();
  SLUICE_ASSIGN_OR_RETURN(
      settings.precision,
      ParsePrecision(json.at("precision").get<std::string>()));
  SLUICE_ASSIGN_OR_RETURN(
      settings.executor, ParseExecutor(json.at("executor").get<std::string>()));
  settings.seed = json.at("seed").get<uint64_t>();
  return settings;
}

Status CheckNumber(const Node& node, const char* what, int64_t number) {
  constexpr int64_t kMost = 1 << 20;  // more than any step has
  if (number >= 0 && number < kMost) return {};
  return InvalidArgument(
      fmt::format("{}: {} is no {}", node.Describe(), number, what));
}

// What Compile relies on and PartitionStep sees to.
Status CheckPart(const Graph& part) {
  SLUICE_RETURN_IF_ERROR(passes::Verify(part));
  for (const auto& node : part.nodes()) {
    for (const TensorType& type : node->output_types()) {
      if (!type.shape.concrete()) {
        return InvalidArgument(fmt::format("{}: its shape {} is not concrete",
                                           node->Describe(),
                                           type.shape.ToString()));
      }
    }
    Status known;
    if (node->Is("Placeholder")) {
      known = CheckNumber(*node, "feed", FeedIndex(*node));
    } else if (node->Is("Fetch")) {
      known = CheckNumber(*node, "fetch", node->attrs().Int("index"));
    } else if (node->Is("Send") || node->Is("Recv")) {
      known = CheckNumber(*node, "edge", node->attrs().Int("slot"));
    }
    SLUICE_RETURN_IF_ERROR(known);
  }
  return {};
}

// Numbers the tensors that are sent, for both of their ends, so that a part
// needs to know of no other.
std::vector<size_t> NumberEdges(const passes::Partitions& parts) {
  std::vector<size_t> bytes;
  std::map<std::string, int64_t> slots;
  for (const auto& [device, part] : parts) {
    for (const auto& node : part->nodes()) {
      if (!node->Is("Send")) continue;
      slots[node->attrs().String("key")] = static_cast<int64_t>(bytes.size());
      bytes.push_back(node->input(0).type().bytes());
    }
  }
  for (const auto& [device, part] : parts) {
    for (const auto& node : part->nodes()) {
      if (!node->Is("Send") && !node->Is("Recv")) continue;
      node->set_attr("slot", slots.at(node->attrs().String("key")));
    }
  }
  return bytes;
}

}  // namespace

std::string PrintPart(const StepPart& part) {
  const Json json = {
      {"device", part.device},
      {"deterministic", part.settings.deterministic},
      {"precision", NameOf(part.settings.precision)},
      {"executor", kExecutors[static_cast<size_t>(part.settings.executor)]},
      {"seed", part.settings.seed}};
  return json.dump() + "\n" + PrintGraph(*part.graph);
}

Result<StepPart> ParsePart(std::string_view text) {
  const size_t line = text.find('\n');
  if (line == text.npos) {
    return InvalidArgument("no part of a step: its graph is missing");
  }
  StepPart part;
  try {
    const Json json = Json::parse(text.substr(0, line));
    part.device = json.at("device").get<std::string>();
    SLUICE_ASSIGN_OR_RETURN(part.settings, ReadSettings(json));
  } catch (const Json::exception& error) {
    return InvalidArgument(fmt::format("no part of a step: {}", error.what()));
  }
  SLUICE_ASSIGN_OR_RETURN(part.graph, ParseGraph(text.substr(line + 1)));
  SLUICE_RETURN_IF_ERROR(CheckPart(*part.graph));
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
  passes::Partitions parts = passes::Partition(*step);
  SLUICE_RETURN_IF_ERROR(passes::Verify(parts).WithContext("after partition"));
  cut.edge_bytes = NumberEdges(parts);
  for (auto& [device, graph] : parts) {
    cut.parts.push_back({device, settings, std::move(graph)});
  }
  return cut;
}

}  // namespace sluice
