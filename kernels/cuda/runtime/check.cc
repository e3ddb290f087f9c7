#include "kernels/cuda/runtime/check.h"

#include <fmt/format.h>

#include <string>

namespace sluice::cuda {
namespace {

// After these all of the process's calls fail ("sticky" in CUDA's terms).
bool Loses(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case 226:  // cudaErrorContained; older headers lack this and the next
    case 721:  // cudaErrorTensorMemoryLeak
    case 810:  // cudaErrorMpsClientTerminated
    case 911:  // cudaErrorExternalDevice
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

std::string CurrentGpu() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess ? fmt::format("GPU {}", device)
                                               : "the GPU";
}

}  // namespace

Status Failure(cudaError_t error, std::string_view what) {
  const std::string said =
      fmt::format("CUDA, {}: {}", what, cudaGetErrorString(error));
  if (Loses(error)) {
    return Unavailable(fmt::format(
        "{} is lost ({}): start the program again; if it recurs, the system's "
        "log has more (dmesg, \"Xid\")",
        CurrentGpu(), said));
  }
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ResourceExhausted(said);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return Unavailable(
          said +
          "; build libsluice_cuda.so for this GPU (CMAKE_CUDA_ARCHITECTURES), "
          "or use /cpu:0");
    default:
      return Internal(said);
  }
}

Status FailureOfLibrary(const Status& error) {
  const cudaError_t now = cudaStreamQuery(nullptr);
  return Loses(now) ? Failure(now, error.message()) : error;
}

}  // namespace sluice::cuda
