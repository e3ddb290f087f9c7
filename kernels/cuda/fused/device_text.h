// The headers that generated kernels include, as text for the run-time
// compiler: nothing is looked for on disk when a program runs. The build writes
// the definition (cmake/SluiceDeviceText.cmake).
#ifndef SLUICE_KERNELS_CUDA_FUSED_DEVICE_TEXT_H_
#define SLUICE_KERNELS_CUDA_FUSED_DEVICE_TEXT_H_

#include <span>

namespace sluice::cuda {

struct DeviceHeader {
  const char* name;  // as it is included: "engine/semantics/scalar.h"
  const char* text;
};
std::span<const DeviceHeader> DeviceHeaders();

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_FUSED_DEVICE_TEXT_H_
