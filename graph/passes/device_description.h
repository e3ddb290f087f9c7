// The description of a device for passes: plain data, so that a master can plan
// for devices of other processes, which send their descriptions as text.
#ifndef SLUICE_GRAPH_PASSES_DEVICE_DESCRIPTION_H_
#define SLUICE_GRAPH_PASSES_DEVICE_DESCRIPTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device.h"
#include "engine/dtype.h"
#include "engine/status.h"
#include "graph/graph.h"

namespace sluice {

struct DeviceDescription {
  std::string name;  // "/gpu:0"
  DeviceType type = DeviceType::kCpu;
  // A new number each time that a device is opened, so that it gets nothing
  // that was sent to the one before.
  uint64_t incarnation = 0;
  int64_t memory_bytes = 0;  // of its own memory; 0 if it uses the host's

  // Whether other steps may write the device's variables while a step runs.
  bool shares_variables = false;

  // Whether the device takes every op, since it does not compute.
  bool runs_all = false;
  // For each op the dtypes of its first operand (of its result, if it has no
  // operand) that the device has kernels for.
  std::map<std::string, DTypeSet, std::less<>> kernels;

  // The number that channels of half-precision convolutions should be a
  // multiple of.
  int64_t half_channels = 1;
  // Whether the device's convolutions want OHWI filters, and would transpose
  // others.
  bool filters_ohwi = false;
  // Whether the device's float16 convolutions can also sum their outputs.
  bool half_sums = false;
  // The least elements of an elementwise node that are worth being fused. On a
  // CPU a node's fixed price is all there is below that, and a fused one has a
  // price too; on a GPU it is a launch, which fewer nodes save.
  int64_t least_fused_elements = 1024;

  // The description of a device as far as its kind tells: without memory and
  // kernels. "/null:0" is planned for as a GPU.
  static DeviceDescription OfKind(const DeviceName& name);

  // Whether the device can run the node, or the node runs nothing.
  bool Runs(const Node& node) const;

  // One line of JSON, and back; an error says what is wrong with the text.
  std::string ToText() const;
  static Result<DeviceDescription> Parse(std::string_view text);
};

using DeviceDescriptions = std::vector<DeviceDescription>;

// The description of the device of that name, or null.
const DeviceDescription* FindDevice(const DeviceDescriptions& devices,
                                    std::string_view name);

}  // namespace sluice

#endif  // SLUICE_GRAPH_PASSES_DEVICE_DESCRIPTION_H_
