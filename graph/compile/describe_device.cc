#include "graph/compile/describe_device.h"

#include "engine/kernel.h"

namespace sluice {

DeviceDescription DescribeKind(const DeviceName& name) {
  DeviceDescription description = DeviceDescription::OfKind(name);
  description.kernels = KernelTable::Global().DTypesByOp(name.type);
  return description;
}

DeviceDescription DescribeDevice(const Device& device) {
  DeviceDescription description = DescribeKind(device.name());
  description.incarnation = device.incarnation();
  description.shares_variables = device.variables().shared();
  // Of the device that the calling thread uses. One that is lost has none.
  Accelerator* const accelerator = device.accelerator();
  if (accelerator != nullptr && accelerator->Use().ok()) {
    description.memory_bytes =
        static_cast<int64_t>(accelerator->memory().total);
  }
  return description;
}

}  // namespace sluice
