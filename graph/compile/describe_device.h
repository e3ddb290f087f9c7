// Describes a device for the planning of steps.
#ifndef SLUICE_GRAPH_COMPILE_DESCRIBE_DEVICE_H_
#define SLUICE_GRAPH_COMPILE_DESCRIBE_DEVICE_H_

#include "engine/device.h"
#include "engine/visibility.h"
#include "graph/passes/device_description.h"

namespace SLUICE_INTERNAL sluice {

// Describes an open device, with the kernels that are registered by now.
DeviceDescription DescribeDevice(const Device& device);
// Describes a device that need not exist, without the fields that only an open
// device has.
DeviceDescription DescribeKind(const DeviceName& name);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_DESCRIBE_DEVICE_H_
