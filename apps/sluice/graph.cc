#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>
#include <string>

#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "graph/compile/describe_device.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/compile/memory_report.h"
#include "graph/passes/pipeline.h"
#include "graph/session/step_builder.h"
#include "graph/text/dot.h"
#include "graph/text/text.h"
#include "graph/text/text_tensor.h"
#include "io/files/file.h"
#include "io/files/without_query.h"

namespace sluice::tool {
namespace {

// No rows of the table: what cuts its result, and what looks at it.
constexpr std::string_view kPartition = "partition";
constexpr std::string_view kVerify = "verify";

// "image=32,784": the placeholder gets this shape.
void Feed(const std::string& feed, Graph& graph) {
  const size_t equals = feed.rfind('=');
  const std::string name = feed.substr(0, equals);
  Node* node = equals == feed.npos ? nullptr : graph.Find(name);
  if (node == nullptr || !node->IsPlaceholder()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--feed {}: wanted PLACEHOLDER=DIMENSIONS, such as "
                            "image=32,784",
                            feed));
  }
  std::vector<int64_t> dims;
  const char* at = feed.data() + equals + 1;
  const char* end = feed.data() + feed.size();
  while (at < end) {
    int64_t d = -1;
    const auto [stop, error] = std::from_chars(at, end, d);
    if (error != std::errc() || d < 0 || (stop < end && *stop != ',')) {
      throw Error(
          Code::kInvalidArgument,
          fmt::format("--feed {}: wanted dimensions such as 32,784", feed));
    }
    dims.push_back(d);
    at = stop + (stop < end);
  }
  const Shape shape{std::span<const int64_t>(dims)};
  if (!Compatible(shape, node->output_type(0).shape)) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("--feed {}: {} has shape {}", feed, node->Describe(),
                    node->output_type(0).shape.ToString()));
  }
  node->set_attr("shape", shape);
}

// Makes the named nodes the targets of the graph as a step.
void Keep(const std::vector<std::string>& names, Graph& graph) {
  const std::string targets(passes::kTargets);
  if (names.empty() || graph.Find(targets) != nullptr) return;
  Node& node =
      graph.AddRaw(targets, targets, OpTable::Global().Get("NoOp"), {}, {}, {});
  for (const std::string& name : names) {
    node.AddControlInput(&graph.Get(name).node());
  }
}

// The fusion pass counts bytes.
void RequireShapes(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    for (const TensorType& type : node->output_types()) {
      if (type.shape.concrete()) continue;
      throw Error(Code::kFailedPrecondition,
                  fmt::format("fuse: {} has shape {}; give --feed and run "
                              "--pass refine before",
                              node->Describe(), type.shape.ToString()));
    }
  }
}

const char* CommentMark(const GraphOptions& options) {
  return options.dot.empty() ? "#" : "//";
}

// What the fusion pass did, before the graph: as comments, or objects.
void PrintFusions(const std::vector<passes::Fusion>& fusions,
                  const GraphOptions& options) {
  int64_t total = 0;
  for (const passes::Fusion& fusion : fusions) {
    total += fusion.bytes_saved;
    if (options.json) {
      PrintJson({{"fused", fusion.node},
                 {"op", fusion.op},
                 {"merged", fusion.merged},
                 {"bytes_saved", fusion.bytes_saved}});
    } else {
      fmt::print("{} {} {} saves {} bytes: {}\n", CommentMark(options),
                 fusion.op, fusion.node, fusion.bytes_saved,
                 fmt::join(fusion.merged, ", "));
    }
  }
  if (!options.json) {
    fmt::print("{} {} fused nodes save {} bytes of memory traffic a step\n",
               CommentMark(options), fusions.size(), total);
  }
}

// Those of --device; for passes that do not place nodes, those that nodes were
// placed on, too.
DeviceDescriptions Devices(const std::string& pass, const GraphOptions& options,
                           const Graph& graph) {
  std::vector<std::string> names = options.devices;
  for (const auto& node : graph.nodes()) {
    if (pass == "place" || !ParseDeviceName(node->device()).ok()) continue;
    if (std::find(names.begin(), names.end(), node->device()) == names.end()) {
      names.push_back(node->device());
    }
  }
  DeviceDescriptions devices;
  for (const std::string& name : names) {
    devices.push_back(DescribeKind(ParseDeviceName(name).ValueOrThrow()));
  }
  return devices;
}

void Run(const std::string& name, const GraphOptions& options, Graph& graph) {
  const bool kept = std::any_of(
      graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
        return node->op().sink || node->name() == passes::kTargets;
      });
  if (name == "prune" && !kept) {
    throw Error(Code::kFailedPrecondition,
                "prune: nothing in the graph is to be kept; name nodes with "
                "--keep");
  }
  passes::Context context;
  context.fold = FoldNode;
  context.devices = Devices(name, options, graph);
  const auto rows = passes::Pipeline();
  const auto pass =
      std::find_if(rows.begin(), rows.end(),
                   [&](const passes::Pass& row) { return row.name == name; });
  if (name == "fuse") {
    RequireShapes(graph);
    PrintFusions(passes::Fuse(graph, context.devices), options);
  } else if (pass != rows.end()) {
    ThrowIfError(pass->run(graph, context).WithContext(name));
  }
  ThrowIfError(passes::Verify(graph).WithContext("after " + name));
}

passes::Partitions Parts(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (!node->device().empty()) continue;
    throw Error(Code::kFailedPrecondition,
                fmt::format("partition: {} has no device; run --pass place "
                            "before",
                            node->Describe()));
  }
  return passes::Partition(graph);
}

Json NodeJson(const Node& node) {
  Json json = {{"name", node.name()}, {"op", node.op().name}};
  json["inputs"] = Json::Array();
  for (const Output& input : node.inputs()) {
    json["inputs"].Add(input.name());
  }
  json["control_inputs"] = Json::Array();
  for (const Node* control : node.control_inputs()) {
    json["control_inputs"].Add(control->name());
  }
  json["attributes"] = Json::Object();
  for (const auto& [name, value] : node.attrs()) {
    json["attributes"][name] = PrintValue(value);
  }
  json["outputs"] = Json::Array();
  for (const TensorType& type : node.output_types()) {
    json["outputs"].Add({{"dtype", NameOf(type.dtype)},
                         {"shape", type.shape.dims()}});  // -1: unknown
  }
  json["device"] = node.device();
  json["origin"] = node.origin();
  return json;
}

void Print(const Graph& graph, const GraphOptions& options) {
  if (options.dot == "full") {
    fmt::print("{}", PrintDot(graph));
  } else if (!options.dot.empty()) {
    fmt::print("{}", PrintOverview(graph, std::stoi(options.dot)));
  } else if (options.json) {
    for (const Node* node : graph.TopologicalOrder())
      PrintJson(NodeJson(*node));
  } else {
    fmt::print("{}", PrintGraph(graph));
  }
}

// A saved graph as a step: its placeholders are fed, and what nobody uses, or
// what is to be kept, is fetched. A saved step stays as it is.
std::unique_ptr<Graph> StepOf(std::unique_ptr<Graph> graph,
                              const std::vector<std::string>& keep) {
  const auto& nodes = graph->nodes();
  if (std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        return node->IsFetch() || node->name() == passes::kTargets;
      })) {
    return graph;
  }
  StepRequest request;
  std::set<const Node*> used;
  for (const auto& node : nodes) {
    for (const Output& input : node->inputs()) used.insert(&input.node());
    if (!node->IsPlaceholder()) continue;
    const Shape& shape = node->attrs().ShapeOf("shape");
    if (!shape.concrete()) {
      throw Error(
          Code::kInvalidArgument,
          fmt::format("--memory: {} has shape {}; say which with --feed "
                      "{}=DIMENSIONS",
                      node->Describe(), shape.ToString(), node->name()));
    }
    request.feeds.push_back({node->output(0), shape});
  }
  for (const std::string& name : keep) {
    request.fetches.push_back(graph->Get(name));
  }
  for (const auto& node : nodes) {
    if (keep.empty() && !used.contains(node.get()) && node->num_outputs() > 0) {
      request.fetches.push_back(node->output(0));
    }
  }
  return ExtractStep(*graph, request).ValueOrThrow();
}

Json ReportJson(const MemoryReport& report) {
  Json json = {{"device", report.device},
               {"arena_bytes", report.arena_bytes},
               {"lower_bound", report.lower_bound},
               {"variable_bytes", report.variable_bytes},
               {"constant_bytes", report.constant_bytes},
               {"instructions", report.instructions},
               {"peak", report.peak},
               {"peak_node", report.peak_node}};
  json["live"] = Json::Array();
  for (const MemoryReport::Live& live : report.live) {
    json["live"].Add({{"value", live.value},
                      {"type", live.type},
                      {"bytes", live.bytes},
                      {"first", live.first},
                      {"last", live.last}});
  }
  return json;
}

void PrintMemory(std::unique_ptr<Graph> graph, const GraphOptions& options) {
  SessionOptions session;
  session.devices = options.devices;
  session.precision = ParsePrecision(options.precision).ValueOrThrow();
  std::vector<std::unique_ptr<Device>> devices;
  for (const std::string& name : options.devices) {
    devices.push_back(
        Device::Open(ParseDeviceName(name).ValueOrThrow()).ValueOrThrow());
  }
  const BuiltStep built =
      PlanStep(StepOf(std::move(graph), options.keep), devices, session)
          .ValueOrThrow();
  for (const BuiltStep::Part& part : built.parts) {
    const MemoryReport report = DescribeMemory(part.plan);
    if (options.json) {
      PrintJson(ReportJson(report));
    } else {
      fmt::print("{}", ToText(report));
    }
  }
}

}  // namespace

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const passes::Pass& pass : passes::Pipeline()) {
    if (std::find(names.begin(), names.end(), pass.name) == names.end()) {
      names.emplace_back(pass.name);
    }
  }
  names.emplace_back(kVerify);
  names.emplace_back(kPartition);
  return names;
}

void ShowGraph(const GraphOptions& options) {
  const std::vector<std::string>& names = options.passes;
  const auto partition = std::find(names.begin(), names.end(), kPartition);
  if (partition != names.end() && partition + 1 != names.end()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--pass partition must be the last, but --pass {} "
                            "is behind it",
                            partition[1]));
  }
  const std::string text =
      FileSystem::Default().Read(options.path).ValueOrThrow();
  Result<std::unique_ptr<Graph>> parsed = ParseGraph(text);
  if (!parsed.ok()) {
    throw Error(parsed.status().WithContext(WithoutQuery(options.path)));
  }
  Graph& graph = **parsed;
  for (const std::string& feed : options.feeds) Feed(feed, graph);
  if (options.memory) return PrintMemory(*std::move(parsed), options);
  Keep(options.keep, graph);
  for (const std::string& name : names) {
    if (name != kPartition) {
      Run(name, options, graph);
      continue;
    }
    for (const auto& [device, part] : Parts(graph)) {
      if (!options.json) fmt::print("{} {}\n", CommentMark(options), device);
      Print(*part, options);
    }
    return;
  }
  Print(graph, options);
}

}  // namespace sluice::tool
