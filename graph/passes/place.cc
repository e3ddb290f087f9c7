#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

Status CheckRequest(const Node& node, const DeviceDescriptions& devices) {
  if (node.device().empty() || FindDevice(devices, node.device()) != nullptr) {
    return {};
  }
  std::vector<std::string_view> names;
  for (const DeviceDescription& device : devices) names.push_back(device.name);
  return NotFound(fmt::format("{}: no device '{}'; there are {} ({})",
                              node.Describe(), node.device(),
                              fmt::join(names, ", "), node.location()));
}

// Where what the node updates lives; empty when it updates nothing.
Result<std::string> DeviceOfVariables(const Node& node) {
  std::string device;
  for (int i = 0; i < node.mutates(); ++i) {
    const Node& variable = node.input(i).node();
    if (device.empty()) {
      device = variable.device();
    } else if (variable.device() != device) {
      return InvalidArgument(fmt::format(
          "{}: updates '{}' on {} and '{}' on {}; put them on one device ({})",
          node.Describe(), node.input(0).name(), device, variable.name(),
          variable.device(), node.location()));
    }
  }
  return device;
}

// "/job:worker/task:1" of "/job:worker/task:1/gpu:0".
std::string_view TaskOf(std::string_view device) {
  return device.substr(0, std::min(device.rfind('/'), device.size()));
}

// Of a task; null: there is none.
const DeviceDescription* FirstCpu(
    const DeviceDescriptions& devices,
    std::optional<std::string_view> task = std::nullopt) {
  const auto cpu = std::find_if(
      devices.begin(), devices.end(), [&](const DeviceDescription& device) {
        return device.type == DeviceType::kCpu &&
               (!task || TaskOf(device.name) == *task);
      });
  return cpu == devices.end() ? nullptr : &*cpu;
}

// To a CPU, of the same task where that has one, unless its own device runs it,
// or what it updates is there.
void MoveWhereItRuns(Node& node, const DeviceDescriptions& devices) {
  const DeviceDescription* const own = FindDevice(devices, node.device());
  if (own == nullptr || node.mutates() > 0 || own->Runs(node)) return;
  const DeviceDescription* cpu = FirstCpu(devices, TaskOf(node.device()));
  if (cpu == nullptr) cpu = FirstCpu(devices);
  if (cpu != nullptr) node.set_device(cpu->name);
}

}  // namespace

Status Place(Graph& graph, const DeviceDescriptions& devices) {
  if (devices.empty()) return InvalidArgument("there are no devices");
  std::vector<Node*> order;
  try {
    order = graph.TopologicalOrder();
  } catch (const Error& error) {
    return error.status();
  }
  for (Node* node : order) {
    SLUICE_RETURN_IF_ERROR(CheckRequest(*node, devices));
    SLUICE_ASSIGN_OR_RETURN(std::string device, DeviceOfVariables(*node));
    if (device.empty()) device = node->device();
    if (device.empty() && node->IsConstant()) continue;
    for (const Output& input : node->inputs()) {
      if (!device.empty()) break;
      if (!input.node().IsConstant()) device = input.node().device();
    }
    node->set_device(device.empty() ? devices[0].name : device);
    for (const Output& input : node->inputs()) {
      Node& operand = input.node();
      if (operand.device().empty()) operand.set_device(node->device());
    }
  }
  for (Node* node : order) {
    if (node->device().empty()) node->set_device(devices[0].name);
  }
  return {};
}

Status MoveUnsupported(Graph& graph, const DeviceDescriptions& devices) {
  if (FirstCpu(devices) == nullptr) {
    return InvalidArgument("soft placement needs a CPU among the devices");
  }
  for (const DeviceDescription& device : devices) {
    if (device.runs_all || !device.kernels.empty()) continue;
    return InvalidArgument(
        fmt::format("soft placement: nothing is known of the kernels of '{}'",
                    device.name));
  }
  for (const auto& node : graph.nodes()) MoveWhereItRuns(*node, devices);
  return {};
}

Status CountOnCpu(Graph& graph, const DeviceDescriptions& devices) {
  for (const auto& node : graph.nodes()) {
    const OpDef& op = node->op();
    if (op.counter == nullptr && op.reads_counted == nullptr) continue;
    const DeviceDescription* const own = FindDevice(devices, node->device());
    if (own == nullptr || own->type == DeviceType::kCpu) continue;
    MoveWhereItRuns(*node, devices);
  }
  return {};
}

Status MeetOnCpu(Graph& graph, const DeviceDescriptions& devices,
                 const std::string& meets_on) {
  const DeviceDescription* const cpu = FirstCpu(devices);
  if (cpu == nullptr) return {};
  std::vector<Node*> collectives;
  for (const auto& node : graph.nodes()) {
    if (node->op().collective) collectives.push_back(node.get());
  }
  const DeviceDescription* const meets = FindDevice(devices, meets_on);
  const bool stay =
      meets != nullptr &&
      std::all_of(collectives.begin(), collectives.end(), [&](Node* node) {
        return node->device() == meets_on && meets->Runs(*node) &&
               node->attrs().String("group").empty();
      });
  if (stay) return {};
  for (Node* node : collectives) {
    const DeviceDescription* const own = FindDevice(devices, node->device());
    // What does not compute has nobody to meet; CPUs do where they are.
    if (own == nullptr || own->runs_all) continue;
    if (own->type == DeviceType::kCpu && own->Runs(*node)) continue;
    node->set_device(cpu->name);
  }
  return {};
}

Status BringHome(Graph& graph, const std::string& home) {
  for (const auto& node : graph.nodes()) {
    if (node->IsPlaceholder() || node->IsFetch()) node->set_device(home);
  }
  return {};
}

}  // namespace sluice::passes
