// What there is to know of an open device before a step is planned for it.
#ifndef SLUICE_GRAPH_COMPILE_DESCRIBE_DEVICE_H_
#define SLUICE_GRAPH_COMPILE_DESCRIBE_DEVICE_H_

#include "engine/device.h"
#include "engine/visibility.h"
#include "graph/passes/device_description.h"

namespace SLUICE_INTERNAL sluice {

// With the kernels that are registered by now.
DeviceDescription DescribeDevice(const Device& device);
// The same of one that need not be there, but for what only an open one has.
DeviceDescription DescribeKind(const DeviceName& name);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_DESCRIBE_DEVICE_H_
