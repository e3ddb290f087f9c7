#include "graph/compile/describe_device.h"

#include "engine/kernel.h"

namespace sluice {

DeviceDescription DescribeDevice(const Device& device) {
  DeviceDescription description = DeviceDescription::OfKind(device.name());
  description.incarnation = device.incarnation();
  if (device.accelerator() != nullptr) {
    description.memory_bytes =
        static_cast<int64_t>(device.accelerator()->memory().total);
  }
  description.kernels = KernelTable::Global().DTypesByOp(device.type());
  return description;
}

}  // namespace sluice
