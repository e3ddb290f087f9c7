// Memory of the current device, and the host's that it copies by itself.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_MEMORY_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_MEMORY_H_

#include <cstddef>
#include <memory>

#include "engine/status.h"

namespace sluice::cuda {

// Memory that is freed with the last copy of the pointer; null for 0 bytes.
// kResourceExhausted says what was wanted and, for device memory, what there
// is.
Result<std::shared_ptr<void>> AllocateOnDevice(size_t bytes);
Result<std::shared_ptr<void>> AllocatePinned(size_t bytes);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_MEMORY_H_
