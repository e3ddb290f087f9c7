// The emulation's side of the CUDA runtime: devices and memory.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tests/kernels/cuda/emulation/machine.h"

namespace sluice::cuda::emulation {
namespace {

Machine machine;
thread_local int current_device = 0;
// Whether kernels of the first may use memory of the second.
bool peers[kMostGpus][kMostGpus];
CopiedBytes copied;

struct {
  std::string function;  // empty: none
  cudaError_t error = cudaSuccess;
  int after = 0;
} failure;
cudaError_t failed = cudaSuccess;
cudaError_t lost = cudaSuccess;

}  // namespace

CallMutex& Calls() {
  static auto* mutex = new CallMutex;
  return *mutex;
}
DeviceMemory& Memory() {
  static auto* memory = new DeviceMemory;  // outlives all that frees into it
  return *memory;
}
const Machine& TheMachine() {
  return machine;
}
int CurrentDevice() {
  return current_device;
}
unsigned ReachOf(int device) {
  unsigned reach = 1u << device;
  for (int to = 0; to < kMostGpus; ++to) {
    if (peers[device][to]) reach |= 1u << to;
  }
  return reach;
}

// --- What can be wrong -------------------------------------------------------

cudaError_t Failing(std::string_view function) {
  const Lock lock;
  if (lost != cudaSuccess) return lost;
  if (failure.function != function || failure.after-- > 0) return cudaSuccess;
  failure.function.clear();
  // Of the others, calls go on to work.
  if (failure.error == cudaErrorLaunchFailure ||
      failure.error == cudaErrorIllegalAddress ||
      failure.error == cudaErrorECCUncorrectable) {
    lost = failure.error;
  }
  return failure.error;
}
cudaError_t Lost() {
  return lost;
}
void NoteFailure(cudaError_t error) {
  if (failed == cudaSuccess) failed = error;
}
cudaError_t TakeFailure() {
  const cudaError_t error = std::exchange(failed, cudaSuccess);
  return lost != cudaSuccess ? lost : error;
}

void SetMachine(const Machine& to) {
  const Lock lock;
  machine = to;
  for (auto& of : peers) {
    for (bool& peer : of) peer = false;
  }
}
void Fail(std::string_view function, cudaError_t error, int after) {
  const Lock lock;
  failure = {std::string(function), error, after};
  lost = failed = cudaSuccess;
}
bool Failed() {
  const Lock lock;
  return failure.function.empty();
}

// --- What is counted ---------------------------------------------------------

void CountCopy(const void* to, const void* from, size_t bytes) {
  const int there = Memory().DeviceOf(to), here = Memory().DeviceOf(from);
  const auto more = static_cast<int64_t>(bytes);
  if (there == here) return;
  // Without access the driver goes by the host's memory, too.
  const bool of_peers = there >= 0 && here >= 0 && peers[there][here];
  (of_peers ? copied.of_peers : copied.of_host) += more;
}
CopiedBytes Copied() {
  const Lock lock;
  return copied;
}

}  // namespace sluice::cuda::emulation

namespace emulation = sluice::cuda::emulation;
using emulation::Lock;
using emulation::Memory;

// --- Devices and memory ------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  SLUICE_MAY_FAIL();
  *count = emulation::TheMachine().gpus;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = emulation::TheMachine().driver;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  SLUICE_MAY_FAIL();
  if (device < 0 || device >= emulation::TheMachine().gpus) {
    return cudaErrorInvalidDevice;
  }
  emulation::current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = emulation::current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  *properties = {"emulated", emulation::TheMachine().memory,
                 emulation::TheMachine().major, 0, 1};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  *total = emulation::TheMachine().memory;
  *available = *total - Memory().used();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  if (emulation::Capturing()) return cudaErrorStreamCaptureUnsupported;
  *memory = Memory().Allocate(emulation::CurrentDevice(), bytes,
                              emulation::TheMachine().memory);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const Lock lock;
  if (memory == nullptr) return cudaSuccess;
  return Memory().Free(memory) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  if (emulation::Capturing()) return cudaErrorStreamCaptureUnsupported;
  *memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  SLUICE_MAY_FAIL();
  return emulation::Add(stream, {[=] {
                                   std::memmove(to, from, bytes);
                                   emulation::CountCopy(to, from, bytes);
                                   return cudaSuccess;
                                 },
                                 /*copies=*/true});
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  SLUICE_MAY_FAIL();
  return emulation::Add(stream, {[=] {
                          std::memset(to, value, bytes);
                          return cudaSuccess;
                        }});
}

// --- Peers -------------------------------------------------------------------

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  const int gpus = emulation::TheMachine().gpus;
  if (device < 0 || peer < 0 || device >= gpus || peer >= gpus) {
    return cudaErrorInvalidDevice;
  }
  const int bit = emulation::kMostGpus * device + peer;
  *can = device != peer && (emulation::TheMachine().peers >> bit & 1) != 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  SLUICE_MAY_FAIL();
  const Lock lock;
  int can = 0;
  const int device = emulation::CurrentDevice();
  const cudaError_t error = cudaDeviceCanAccessPeer(&can, device, peer);
  if (error != cudaSuccess) return error;
  if (can == 0) return cudaErrorPeerAccessUnsupported;
  if (std::exchange(emulation::peers[device][peer], true)) {
    return cudaErrorPeerAccessAlreadyEnabled;
  }
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorPeerAccessUnsupported:
      return "peer access is not supported between these two devices";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "peer access is already enabled";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorStreamCaptureMerge:
      return "operation would merge two captures";
    case cudaErrorStreamCaptureUnjoined:
      return "a stream of the capture was not joined to its first";
    case cudaErrorStreamCaptureIsolation:
      return "a captured operation would depend on one that is not";
    case cudaErrorCapturedEvent:
      return "the event was last recorded in a capture";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorLaunchFailure:
      return emulation::LastError().empty() ? "unspecified launch failure"
                                            : emulation::LastError().c_str();
    default:
      return "invalid argument";
  }
}
