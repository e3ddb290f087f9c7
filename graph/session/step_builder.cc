#include "graph/session/step_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_set>

#include "graph/compile/evaluate.h"
#include "graph/compile/lower.h"
#include "graph/passes/passes.h"

namespace sluice {
namespace {

// Keeps what a request needs and all it depends on.
std::unordered_set<const Node*> Ancestors(const StepRequest& request) {
  std::unordered_set<const Node*> needed;
  std::vector<const Node*> stack;
  auto visit = [&](const Node& node) {
    if (needed.insert(&node).second) stack.push_back(&node);
  };
  for (const Output& fetch : request.fetches) visit(fetch.node());
  for (const Operation& target : request.targets) visit(target.node());
  for (const FeedShape& feed : request.feeds) visit(feed.output.node());
  while (!stack.empty()) {
    const Node& node = *stack.back();
    stack.pop_back();
    for (const Output& input : node.inputs()) visit(input.node());
    for (const Node* control : node.control_inputs()) visit(*control);
  }
  return needed;
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
  std::set<Output> fed;
  for (const FeedShape& feed : request.feeds) {
    const Output& output = feed.output;
    SLUICE_RETURN_IF_ERROR(
        check(output.valid() ? &output.node() : nullptr, "feed"));
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
    SLUICE_RETURN_IF_ERROR(
        check(fetch.valid() ? &fetch.node() : nullptr, "fetch"));
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
  return node.Is("Placeholder") && node.name().starts_with(kFeed);
}
// Negative where the name has none.
int64_t FeedIndex(const Node& node) {
  const std::string_view text =
      std::string_view(node.name()).substr(kFeed.size());
  int64_t index = -1;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), index);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? index : -1;
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

// Every placeholder that is left must be one of the feeds.
Status CheckFed(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->Is("Placeholder") && !IsFeed(*node)) {
      return InvalidArgument(
          fmt::format("{}: it must be fed; add it to the feeds ({})",
                      node->Describe(), node->location()));
    }
  }
  return {};
}

// Runs a pass and, in debug and test builds, checks what it left.
Status After(std::string_view pass, const Graph& graph,
             const Status& status = {}) {
  SLUICE_RETURN_IF_ERROR(status);
#ifndef NDEBUG
  return passes::Verify(graph).WithContext(fmt::format("after {}", pass));
#else
  static_cast<void>(pass);
  static_cast<void>(graph);
  return {};
#endif
}

// Has the node's device a kernel for it, or does it need none?
bool HasKernel(const Node& node) {
  const Result<DeviceName> device = ParseDeviceName(node.device());
  return !device.ok() || device->type == DeviceType::kNull ||
         !IsInstruction(node) ||
         !KernelTable::Global()
              .FindAll(SpecOf(node, /*deterministic=*/false), device->type)
              .empty();
}

Status Optimize(Graph& graph, const std::vector<std::string>& device_names,
                const SessionOptions& options) {
  passes::Prune(graph);
  SLUICE_RETURN_IF_ERROR(After("prune", graph, CheckFed(graph)));
  SLUICE_RETURN_IF_ERROR(After("refine", graph, passes::Refine(graph)));
  if (options.simplify) {
    passes::Simplify(graph);
    SLUICE_RETURN_IF_ERROR(After("simplify", graph));
    passes::MergeCommon(graph);
    SLUICE_RETURN_IF_ERROR(After("merge", graph));
    passes::FoldBatchNorm(graph);
    SLUICE_RETURN_IF_ERROR(After("fold batch norm", graph));
  }
  passes::Prune(graph);
  SLUICE_RETURN_IF_ERROR(
      After("place", graph, passes::Place(graph, device_names)));
  if (options.soft_placement) {
    passes::MoveUnsupported(graph, HasKernel, FirstCpu(options.devices));
    SLUICE_RETURN_IF_ERROR(After("move unsupported", graph));
  }
  if (const auto half = HalfTypeOf(options.precision)) {
    SLUICE_RETURN_IF_ERROR(
        After("mixed precision", graph, passes::MixPrecision(graph, *half)));
  }
  passes::PadChannels(graph);
  passes::Prune(graph);
  SLUICE_RETURN_IF_ERROR(After("pad channels", graph));
  SLUICE_RETURN_IF_ERROR(
      After("order variables", graph, passes::OrderVariables(graph)));
  if (options.fuse) {
    passes::Fuse(graph);
    SLUICE_RETURN_IF_ERROR(After("fuse", graph));
  }
  graph.Renumber(Schedule(graph));
  return After("schedule", graph);
}

// A frozen variable's value. On the host it is shared: nothing writes to it.
Result<Tensor> HostValue(const Device& device, const Variable& variable) {
  if (device.accelerator() == nullptr) return variable.value;
  return device.memory().Download(variable.value);
}

// Variables to constants.
Status FreezeVariables(Graph& step,
                       const std::vector<std::unique_ptr<Device>>& devices) {
  const OpDef& constant = OpTable::Global().Get("Const");
  for (const auto& node : step.nodes()) {
    if (node->mutates() > 0) {
      return FailedPrecondition(
          fmt::format("{}: it updates a variable, but the session is frozen "
                      "({})",
                      node->Describe(), node->location()));
    }
    if (!node->Is("Variable")) continue;
    for (const auto& device : devices) {
      const Variable* variable = device->variables().Find(node->origin());
      if (variable == nullptr || !variable->initialized) continue;
      const Result<Tensor> value = HostValue(*device, *variable);
      if (!value.ok()) return value.status();
      node->Become(constant, {{"value", *value}}, {});
      break;
    }
  }
  return {};
}

}  // namespace

std::string FirstCpu(const std::vector<std::string>& devices) {
  const auto cpu = std::find_if(
      devices.begin(), devices.end(),
      [](const std::string& name) { return name.starts_with("/cpu:"); });
  return cpu == devices.end() ? "" : *cpu;
}

Result<std::unique_ptr<Graph>> ExtractStep(const Graph& graph,
                                           const StepRequest& request) {
  SLUICE_RETURN_IF_ERROR(CheckRequest(graph, request));
  const auto needed = Ancestors(request);
  std::unique_ptr<Graph> step =
      graph.Clone([&](const Node& node) { return needed.contains(&node); });
  auto twin = [&](const Output& output) {
    return step->Find(output.node().name())->output(output.index());
  };

  // Fetches first, so that a fetched feed is the fed value like everywhere.
  const OpDef& fetch_op = OpTable::Global().Get("Fetch");
  for (size_t i = 0; i < request.fetches.size(); ++i) {
    const std::string name = fmt::format("_fetch_{}", i);
    step->AddRaw(name, name, fetch_op, {{"index", static_cast<int64_t>(i)}},
                 {twin(request.fetches[i])}, {});
  }
  if (!request.targets.empty()) {
    Node& targets = step->AddRaw("_targets", "_targets",
                                 OpTable::Global().Get("NoOp"), {}, {}, {});
    for (const Operation& target : request.targets) {
      targets.AddControlInput(step->Find(target.node().name()));
    }
  }
  const OpDef& placeholder = OpTable::Global().Get("Placeholder");
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    const Output fed = twin(request.feeds[i].output);
    const TensorType type{fed.dtype(), request.feeds[i].shape};
    const std::string name = FeedName(static_cast<int>(i));
    Node& feed = step->AddRaw(name, name, placeholder,
                              {{"dtype", type.dtype}, {"shape", type.shape}},
                              {}, {type});
    // Another node that is fed still runs where it is waited for; a placeholder
    // has nothing to run.
    step->ReplaceUses(fed, feed.output(0), fed.node().Is("Placeholder"));
  }
  return step;
}

Result<BuiltStep> PlanStep(std::unique_ptr<Graph> step,
                           const std::vector<std::unique_ptr<Device>>& devices,
                           const SessionOptions& options) {
  BuiltStep built;
  LowerOptions lower;
  lower.deterministic = options.deterministic;
  lower.tf32 = options.precision == Precision::kTf32;
  lower.mode = options.executor;
  // Before pruning, which may drop feeds that nothing reads.
  for (const auto& node : step->nodes()) {
    if (!IsFeed(*node)) continue;
    const int64_t index = FeedIndex(*node);
    SLUICE_RETURN_IF_ERROR(
        SetType(*node, index, node->output_type(0), &built.feed_types));
    lower.feeds[node->name()] = static_cast<int>(index);
  }
  SLUICE_RETURN_IF_ERROR(Optimize(*step, options.devices, options));
  for (const auto& node : step->nodes()) {
    if (!node->Is("Fetch")) continue;
    SLUICE_RETURN_IF_ERROR(SetType(*node, node->attrs().Int("index"),
                                   node->input(0).type(), &built.fetch_types));
  }
  const auto partitions = passes::Partition(*step);
  for (const auto& [name, part] : partitions) {
    SLUICE_RETURN_IF_ERROR(After("partition", *part));
    for (const auto& node : part->nodes()) {
      if (!node->Is("Send")) continue;
      lower.slots[node->attrs().String("key")] =
          static_cast<int>(built.slot_bytes.size());
      built.slot_bytes.push_back(node->input(0).type().bytes());
    }
  }
  for (const auto& [name, part] : partitions) {
    for (const auto& device : devices) {
      if (device->name().ToString() != name) continue;
      SLUICE_ASSIGN_OR_RETURN(Plan plan, Lower(*part, *device, lower));
      built.parts.push_back({device.get(), std::move(plan)});
    }
  }
  return built;
}

Result<BuiltStep> BuildStep(const Graph& graph, const StepRequest& request,
                            const std::vector<std::unique_ptr<Device>>& devices,
                            const SessionOptions& options, bool frozen) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Graph> step,
                          ExtractStep(graph, request));
  if (frozen) SLUICE_RETURN_IF_ERROR(FreezeVariables(*step, devices));
  return PlanStep(std::move(step), devices, options);
}

}  // namespace sluice
