#include "kernels/cuda/runtime/memory.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "kernels/cuda/runtime/check.h"

namespace sluice::cuda {
namespace {

double GiB(size_t bytes) {
  return static_cast<double>(bytes) / (size_t{1} << 30);
}

}  // namespace

Result<std::shared_ptr<void>> AllocateOnDevice(size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return std::shared_ptr<void>();
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    size_t available = 0, total = 0;
    cudaMemGetInfo(&available, &total);
    return ResourceExhausted(fmt::format(
        "out of GPU memory: {} bytes ({:.2f} GiB) wanted, {} of {} bytes "
        "({:.2f} of {:.2f} GiB) available",
        bytes, GiB(bytes), available, total, GiB(available), GiB(total)));
  }
  SLUICE_RETURN_IF_ERROR(Check(error, "allocation of device memory"));
  return std::shared_ptr<void>(memory, [](void* p) { cudaFree(p); });
}

Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return std::shared_ptr<void>();
  const cudaError_t error = cudaMallocHost(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    return ResourceExhausted(fmt::format(
        "out of pinned memory: {} bytes ({:.2f} GiB) of the host's wanted",
        bytes, GiB(bytes)));
  }
  SLUICE_RETURN_IF_ERROR(Check(error, "allocation of pinned memory"));
  return std::shared_ptr<void>(memory, [](void* p) { cudaFreeHost(p); });
}

}  // namespace sluice::cuda
