#include "graph/passes/device_description.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/text/json.h"
#include "engine/text/json_object.h"

namespace sluice {
namespace {

Json NamesOf(const DTypeSet& dtypes) {
  Json names = Json::Array();
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtypes.Contains(dtype)) names.Add(NameOf(dtype));
  }
  return names;
}

Result<DTypeSet> ParseDTypes(const std::vector<std::string>& names) {
  DTypeSet dtypes;
  for (const std::string& name : names) {
    SLUICE_ASSIGN_OR_RETURN(const DType dtype, ParseDType(name));
    dtypes = dtypes | dtype;
  }
  return dtypes;
}

Result<DeviceDescription> Read(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  DeviceDescription read;
  SLUICE_ASSIGN_OR_RETURN(read.name, json.String("name"));
  SLUICE_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(read.name));
  read.type = name.type;
  SLUICE_ASSIGN_OR_RETURN(read.incarnation, json.Unsigned("incarnation"));
  SLUICE_ASSIGN_OR_RETURN(read.memory_bytes, json.Int("memory_bytes"));
  SLUICE_ASSIGN_OR_RETURN(read.shares_variables, json.Bool("shares_variables"));
  SLUICE_ASSIGN_OR_RETURN(read.runs_all, json.Bool("runs_all"));
  SLUICE_ASSIGN_OR_RETURN(read.half_channels, json.Int("half_channels"));
  SLUICE_ASSIGN_OR_RETURN(read.filters_ohwi, json.Bool("filters_ohwi"));
  SLUICE_ASSIGN_OR_RETURN(read.half_sums, json.Bool("half_sums"));
  SLUICE_ASSIGN_OR_RETURN(read.least_fused_elements,
                          json.Int("least_fused_elements"));
  if (read.half_channels < 1 || read.least_fused_elements < 0) {
    return InvalidArgument("half_channels or least_fused_elements is negative");
  }
  SLUICE_ASSIGN_OR_RETURN(const JsonObject kernels, json.Object("kernels"));
  for (const std::string& op : kernels.names()) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> dtypes,
                            kernels.Strings(op));
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
  if (name.type != DeviceType::kCpu) {
    device.half_channels = 4;
    device.filters_ohwi = true;       // cuDNN's
    device.half_sums = true;          // cuDNN's
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
               {"shares_variables", shares_variables},
               {"runs_all", runs_all},
               {"half_channels", half_channels},
               {"filters_ohwi", filters_ohwi},
               {"half_sums", half_sums},
               {"least_fused_elements", least_fused_elements},
               {"kernels", Json::Object()}};
  for (const auto& [op, dtypes] : kernels)
    json["kernels"][op] = NamesOf(dtypes);
  return json.Text();
}

Result<DeviceDescription> DeviceDescription::Parse(std::string_view text) {
  Result<DeviceDescription> read = Read(text);
  SLUICE_RETURN_IF_ERROR(
      read.status().WithContext("no description of a device"));
  return read;
}

const DeviceDescription* FindDevice(const DeviceDescriptions& devices,
                                    std::string_view name) {
  const auto found = std::find_if(
      devices.begin(), devices.end(),
      [&](const DeviceDescription& device) { return device.name == name; });
  return found == devices.end() ? nullptr : &*found;
}

}  // namespace sluice
