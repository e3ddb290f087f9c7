// Devices that need not be there, for passes.
#ifndef SLUICE_TESTS_SUPPORT_DESCRIBED_H_
#define SLUICE_TESTS_SUPPORT_DESCRIBED_H_

#include <algorithm>
#include <string>
#include <vector>

#include "graph/passes/device_description.h"

namespace sluice::testing {

// Of those kinds, by name.
inline DeviceDescriptions Described(const std::vector<std::string>& names) {
  DeviceDescriptions devices;
  for (const std::string& name : names) {
    devices.push_back(
        DeviceDescription::OfKind(ParseDeviceName(name).ValueOrThrow()));
  }
  return devices;
}

// Those that the graph's nodes are on.
inline DeviceDescriptions DescribedIn(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) {
    const bool known = std::count(names.begin(), names.end(), node->device());
    if (!known && ParseDeviceName(node->device()).ok()) {
      names.push_back(node->device());
    }
  }
  return Described(names);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_DESCRIBED_H_
