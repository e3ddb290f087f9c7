// The engine's Accelerator by the CUDA runtime.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_ACCELERATOR_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_ACCELERATOR_H_

#include <memory>

#include "engine/accelerator.h"
#include "engine/status.h"

namespace sluice::cuda {

// An AcceleratorOpener. Unavailable when there is no such GPU, saying how many
// there are, or no driver.
Result<std::unique_ptr<Accelerator>> OpenCuda(int index, bool shared);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_ACCELERATOR_H_
