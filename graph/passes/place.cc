#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/device.h"
#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

Status CheckRequest(const Node& node, const std::vector<std::string>& devices) {
  if (node.device().empty() || std::find(devices.begin(), devices.end(),
                                         node.device()) != devices.end()) {
    return {};
  }
  return NotFound(fmt::format("{}: no device '{}'; there are {} ({})",
                              node.Describe(), node.device(),
                              fmt::join(devices, ", "), node.location()));
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

}  // namespace

Status Place(Graph& graph, const std::vector<std::string>& devices) {
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
    if (device.empty() && node->Is("Const")) continue;
    for (const Output& input : node->inputs()) {
      if (!device.empty()) break;
      if (!input.node().Is("Const")) device = input.node().device();
    }
    node->set_device(device.empty() ? devices[0] : device);
    for (const Output& input : node->inputs()) {
      Node& operand = input.node();
      if (operand.device().empty()) operand.set_device(node->device());
    }
  }
  for (Node* node : order) {
    if (node->device().empty()) node->set_device(devices[0]);
  }
  return {};
}

bool OnGpu(const Node& node) {
  const Result<DeviceName> device = ParseDeviceName(node.device());
  return device.ok() && device->type == DeviceType::kCuda;
}

void MoveUnsupported(Graph& graph,
                     const std::function<bool(const Node&)>& supported,
                     const std::string& fallback) {
  for (const auto& node : graph.nodes()) {
    if (node->mutates() == 0 && !supported(*node)) node->set_device(fallback);
  }
}

}  // namespace sluice::passes
