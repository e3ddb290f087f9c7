// What passes know of a device: plain data, so that a master can plan for
// devices of other processes that have written it down and sent it.
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
  // Another one each time that a device is opened: what was sent to the one
  // before is not for it.
  uint64_t incarnation = 0;
  int64_t memory_bytes = 0;  // of its own; 0 where it uses the host's

  // Whether steps of others may write its variables while a step runs.
  bool shares_variables = false;

  // Whether it runs every op there is: it does not compute.
  bool runs_all = false;
  // The dtypes of each op's first operand (of an op without one, of its
  // result) that it has kernels for.
  std::map<std::string, DTypeSet, std::less<>> kernels;

  // Channels that convolutions in half precision want to be a multiple of.
  int64_t half_channels = 1;
  // Whether its convolutions want filters OHWI, and would turn others.
  bool filters_ohwi = false;
  // Whether its convolutions in float16 can sum what they make in passing.
  bool half_sums = false;
  // The least elements of an elementwise node that are worth being fused. On a
  // CPU a node's fixed price is all there is below that, and a fused one has a
  // price too; on a GPU it is a launch, which fewer nodes save.
  int64_t least_fused_elements = 1024;

  // A device of that kind, as far as its kind tells: no memory, no kernels.
  // "/null:0" is planned for as a GPU.
  static DeviceDescription OfKind(const DeviceName& name);

  // Whether it can run the node, or nothing has to be run.
  bool Runs(const Node& node) const;

  // One line of JSON, and back; an error says what is wrong with the text.
  std::string ToText() const;
  static Result<DeviceDescription> Parse(std::string_view text);
};

using DeviceDescriptions = std::vector<DeviceDescription>;

// Null where no device has that name.
const DeviceDescription* FindDevice(const DeviceDescriptions& devices,
                                    std::string_view name);

}  // namespace sluice

#endif  // SLUICE_GRAPH_PASSES_DEVICE_DESCRIPTION_H_
