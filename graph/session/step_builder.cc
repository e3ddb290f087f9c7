#include "graph/session/step_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/runtime/collective.h"
#include "engine/runtime/device_meeting.h"
#include "graph/compile/describe_device.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/compile/launches.h"
#include "graph/compile/lower.h"
#include "graph/compile/step_part.h"

namespace sluice {
namespace {

using Devices = std::vector<std::unique_ptr<Device>>;

// In the order of options.devices, the first of which is where unplaced nodes
// go: this task's and the others' by turns, as their names say.
Result<DeviceDescriptions> DescribeAll(const Devices& devices,
                                       const SessionOptions& options,
                                       const ClusterSession& cluster) {
  DeviceDescriptions all;
  const std::vector<std::string> texts = cluster.Descriptions();
  auto text = texts.begin();
  auto device = devices.begin();
  for (const std::string& name : options.devices) {
    if (IsHere(name, options.task)) {
      all.push_back(DescribeDevice(**device++));
      continue;
    }
    SLUICE_CHECK(text != texts.end());
    SLUICE_ASSIGN_OR_RETURN(DeviceDescription described,
                            DeviceDescription::Parse(*text++));
    all.push_back(std::move(described));
  }
  return all;
}

Result<passes::Context> ContextOf(const Devices& devices,
                                  const SessionOptions& options,
                                  const ClusterSession* cluster) {
  passes::Context context;
  if (cluster != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(context.devices,
                            DescribeAll(devices, options, *cluster));
    if (options.task.empty()) context.home = devices[0]->name().ToString();
  } else {
    for (const auto& device : devices) {
      context.devices.push_back(DescribeDevice(*device));
    }
  }
  context.fold = FoldNode;
  if (options.collective != nullptr) {
    context.commit_together = options.collective->elastic();
    if (DeviceMeeting* const meeting = options.collective->on_device()) {
      context.meets_on = meeting->device();
    }
    context.workers = [all = options.collective](std::string_view group) {
      const Collective* const of =
          group.empty() ? all.get() : all->Subgroup(group);
      return of == nullptr ? passes::Seat{.size = 0}
                           : passes::Seat{of->size(), of->rank()};
    };
  }
  context.simplify = options.simplify;
  context.soft_placement = options.soft_placement;
  context.fuse = options.fuse;
  context.fuse_statistics = options.fuse_statistics;
  context.half = HalfTypeOf(options.precision);
  return context;
}

Result<Device*> DeviceOf(const StepPart& part, const Devices& devices) {
  for (const auto& device : devices) {
    if (device->name().ToString() == part.device) return device.get();
  }
  return NotFound(
      fmt::format("{}: it is for device '{}', which is not open here",
                  part.graph->nodes().back()->Describe(), part.device));
}

// A frozen variable's value. On the host it need be no copy where nobody but
// the session writes to it.
Result<Tensor> HostValue(const Device& device, Variable& variable,
                         FrozenValues* frozen) {
  const bool shared = device.variables().shared();
  if (device.accelerator() == nullptr && !shared) return variable.value;
  if (const auto known = frozen->find(&variable); known != frozen->end()) {
    return known->second;
  }
  const ReaderLock unchanged(variable.mutex);
  Result<Tensor> value = device.memory().Download(variable.value);
  if (shared && value.ok()) frozen->emplace(&variable, *value);
  return value;
}

// Variables to constants.
Status FreezeVariables(Graph& step, const Devices& devices,
                       FrozenValues* frozen) {
  const OpDef& constant = OpTable::Global().Get("Const");
  for (const auto& node : step.nodes()) {
    if (node->mutates() > 0) {
      return FailedPrecondition(
          fmt::format("{}: it updates a variable, but the session is frozen "
                      "({})",
                      node->Describe(), node->location()));
    }
    if (!node->IsVariable()) continue;
    Device& home = HomeOf(*node, devices);
    SLUICE_ASSIGN_OR_RETURN(Variable * variable, FindVariable(*node, home));
    if (variable == nullptr || !variable->initialized) continue;
    const Result<Tensor> value = HostValue(home, *variable, frozen);
    if (!value.ok()) return value.status();
    node->Become(constant, {{"value", *value}}, {});
  }
  return {};
}

// What the parts for GPUs, and for what is planned for as one, launch.
std::vector<StepInfo::Launch> CountLaunches(
    const std::vector<StepPart>& parts) {
  std::vector<StepInfo::Launch> all;
  for (const StepPart& part : parts) {
    const Result<DeviceName> device = ParseDeviceName(part.device);
    if (!device.ok() || device->type == DeviceType::kCpu) continue;
    for (const Node* node : part.graph->TopologicalOrder()) {
      for (const KernelLaunch& launch : LaunchesOf(*node)) {
        all.push_back({std::string(NameOf(launch.kind)), launch.kernel,
                       launch.Bytes(*node), launch.multiply_adds});
      }
    }
  }
  return all;
}

// Which feeds and fetches this process's parts have.
void NoteOperands(const Graph& part, BuiltStep* built) {
  for (const auto& node : part.nodes()) {
    if (node->IsPlaceholder()) {
      built->feeds_here[static_cast<size_t>(FeedIndex(*node))] = true;
    } else if (node->IsFetch()) {
      const int64_t index = node->attrs().Int("index");
      built->fetches_here[static_cast<size_t>(index)] = true;
    }
  }
}

// Another task has nobody to meet there: it would take its own x for the sum.
Status CheckNoCollectives(const StepPart& far) {
  for (const auto& node : far.graph->nodes()) {
    if (!node->op().collective) continue;
    return Unimplemented(fmt::format(
        "{}: it is to be on '{}', but workers meet on devices of their own "
        "process alone ({})",
        node->Describe(), far.device, node->location()));
  }
  return {};
}

}  // namespace

Result<BuiltStep> PlanStep(std::unique_ptr<Graph> step, const Devices& devices,
                           const SessionOptions& options,
                           const ClusterSession* cluster) {
  SLUICE_ASSIGN_OR_RETURN(const passes::Context context,
                          ContextOf(devices, options, cluster));
  SLUICE_ASSIGN_OR_RETURN(
      StepParts cut, PartitionStep(std::move(step), context,
                                   {options.deterministic, options.precision,
                                    options.executor, options.seed}));
  BuiltStep built;
  if (!cut.parts.empty()) built.edges = cut.parts[0].edges;
  for (size_t i = 0; i < cut.parts.size();) {
    if (cluster == nullptr || IsHere(cut.parts[i].device, options.task)) {
      ++i;
      continue;
    }
    if (options.task.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckNoCollectives(cut.parts[i]));
    }
    built.remote.push_back(std::move(cut.parts[i]));
    cut.parts.erase(cut.parts.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const bool all_here = options.task.empty();
  built.feeds_here.assign(cut.feed_types.size(), all_here);
  built.fetches_here.assign(cut.fetch_types.size(), all_here);
  for (const StepPart& part : cut.parts) NoteOperands(*part.graph, &built);
  SLUICE_ASSIGN_OR_RETURN(built.parts, CompileParts(cut.parts, devices));
  built.launches = CountLaunches(cut.parts);
  built.cut = std::move(cut.parts);
  built.feed_types = std::move(cut.feed_types);
  built.fetch_types = std::move(cut.fetch_types);
  built.passes = std::move(cut.passes);
  return built;
}

Result<std::vector<BuiltStep::Part>> CompileParts(
    const std::vector<StepPart>& cut, const Devices& devices) {
  std::vector<BuiltStep::Part> parts;
  for (const StepPart& part : cut) {
    SLUICE_ASSIGN_OR_RETURN(Device * device, DeviceOf(part, devices));
    SLUICE_ASSIGN_OR_RETURN(Plan plan, Compile(part, *device));
    parts.push_back({device, std::move(plan)});
  }
  return parts;
}

Device& HomeOf(const Node& variable, const Devices& devices) {
  for (const auto& device : devices) {
    if (device->name().ToString() == variable.device()) return *device;
  }
  return *devices[0];
}

Result<Variable*> FindVariable(const Node& variable, Device& home) {
  Variable* const found = home.variables().Find(variable.origin());
  if (found == nullptr) return found;
  // Its type is checked where it is declared.
  return home.variables().Declare(variable.origin(), variable.output_type(0));
}

Result<BuiltStep> BuildStep(const Graph& graph, const StepRequest& request,
                            const Devices& devices,
                            const SessionOptions& options, FrozenValues* frozen,
                            const ClusterSession* cluster) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Graph> step,
                          ExtractStep(graph, request));
  if (frozen != nullptr) {
    SLUICE_RETURN_IF_ERROR(FreezeVariables(*step, devices, frozen));
  }
  // Of the whole step: parts that other tasks have count here, too.
  const bool updates =
      std::any_of(step->nodes().begin(), step->nodes().end(),
                  [](const auto& node) { return node->mutates() > 0; });
  SLUICE_ASSIGN_OR_RETURN(BuiltStep built,
                          PlanStep(std::move(step), devices, options, cluster));
  built.updates = updates;
  return built;
}

}  // namespace sluice
