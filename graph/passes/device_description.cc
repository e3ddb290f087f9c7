#include "graph/passes/device_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using Json = nlohmann::json;

Json NamesOf(const DTypeSet& dtypes) {
  Json names = Json::array();
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtypes.Contains(dtype)) names.push_back(NameOf(dtype));
  }
  return names;
}

Result<DTypeSet> ParseDTypes(const Json& names) {
  DTypeSet dtypes;
  for (const Json& name : names) {
    SLUICE_ASSIGN_OR_RETURN(const DType dtype,
                            ParseDType(name.get<std::string>()));
    dtypes = dtypes | dtype;
  }
  return dtypes;
}

Result<DeviceDescription> Read(const Json& json) {
  DeviceDescription read;
  read.name = json.at("name").get<std::string>();
  SLUICE_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(read.name));
  read.type = name.type;
  read.incarnation = json.at("incarnation").get<uint64_t>();
  read.memory_bytes = json.at("memory_bytes").get<int64_t>();
  read.runs_all = json.at("runs_all").get<bool>();
  read.half_channels = json.at("half_channels").get<int64_t>();
  read.least_fused_elements = json.at("least_fused_elements").get<int64_t>();
  if (read.half_channels < 1 || read.least_fused_elements < 0) {
    return InvalidArgument("half_channels or least_fused_elements is negative");
  }
  for (const auto& [op, dtypes] : json.at("kernels").items()) {
    SLUICE_ASSIGN_OR_RETURN(read.kernels[op], ParseDTypes(dtypes));
  }
  return read;
}

}  // namespace

DeviceDescription DeviceDescription::OfKind(const DeviceName& name) {
  DeviceDescription device;
  device.name = name.ToString();
  device.type = name.type;
  device.runs_all = name.type == DeviceType::kNull;
  if (name.type == DeviceType::kCuda) {
    device.half_channels = 4;
    device.least_fused_elements = 1;  // each node is a launch
  }
  return device;
}

bool DeviceDescription::Runs(const Node& node) const {
  if (runs_all || !node.IsInstruction()) return true;
  const auto op = kernels.find(node.op().name);
  if (op == kernels.end()) return false;
  if (node.num_inputs() > 0) return op->second.Contains(node.input(0).dtype());
  return node.num_outputs() == 0 ||
         op->second.Contains(node.output_type(0).dtype);
}

std::string DeviceDescription::ToText() const {
  Json json = {{"name", name},
               {"incarnation", incarnation},
               {"memory_bytes", memory_bytes},
               {"runs_all", runs_all},
               {"half_channels", half_channels},
               {"least_fused_elements", least_fused_elements},
               {"kernels", Json::object()}};
  for (const auto& [op, dtypes] : kernels)
    json["kernels"][op] = NamesOf(dtypes);
  return json.dump();
}

Result<DeviceDescription> DeviceDescription::Parse(std::string_view text) {
  try {
    return Read(Json::parse(text));
  } catch (const Json::exception& error) {
    return InvalidArgument(
        fmt::format("no description of a device: {}", error.what()));
  }
}

const DeviceDescription* FindDevice(const DeviceDescriptions& devices,
                                    std::string_view name) {
  const auto found = std::find_if(
      devices.begin(), devices.end(),
      [&](const DeviceDescription& device) { return device.name == name; });
  return found == devices.end() ? nullptr : &*found;
}

}  // namespace sluice
