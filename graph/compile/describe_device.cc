#include "graph/compile/describe_device.h"

#include "engine/kernel.h"

namespace sluice {

DeviceDescription DescribeDevice(const Device& device) {
  DeviceDescription description = DeviceDescription::OfKind(device.name());
  description.incarnation = device.incarnation();
  // Of the device that the calling thread uses. One that is lost has none.
  Accelerator* const accelerator = device.accelerator();
  if (accelerator != nullptr && accelerator->Use().ok()) {
    description.memory_bytes =
        static_cast<int64_t>(accelerator->memory().total);
  }
  description.kernels = KernelTable::Global().DTypesByOp(device.type());
  return description;
}

}  // namespace sluice
