// Stands in for the CUDA header of this name where kernels/cuda is compiled as
// C++ for the emulation (tests/kernels/cuda/emulation/emulator.h): the part of
// it that our kernels use, with the same names and meanings.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)  // NOLINT
      : x(x_), y(y_), z(z_) {}
};

// --- Host side ---------------------------------------------------------------

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorPeerAccessUnsupported = 217,
  cudaErrorNvlinkUncorrectable = 220,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorContextIsDestroyed = 709,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
};
// Of a launch failure, what the last one did wrong.
const char* cudaGetErrorString(cudaError_t error);

// Launches on the null stream are over on return. Work on others is done as
// late as possible: when something waits for it.
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor;
  int multiProcessorCount;
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventRecordExternal = 1;

cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* available, size_t* total);
// Device memory can be touched only by work on a stream.
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaGetLastError();
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
// Of the null stream, whose work is over.
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags = 0);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace sluice::cuda::emulation {

// Runs `thread` once for each thread of the grid, when the stream's turn comes.
cudaError_t Enqueue(const cudaLaunchConfig_t& config,
                    std::function<void()> thread);

// What the accessors of kernels/cuda/device/element.h do to global memory.
void CountLoad(const void* from, size_t bytes);
void CountStore(const void* to, size_t bytes);

void* SharedMemory();  // of the running block
void BlockBarrier();

// What the lanes of a warp do together. Every lane gives a value.
struct Exchange {
  enum Kind : uint8_t { kShuffle, kVote, kMeet };
  Kind kind = kMeet;
  unsigned mask = 0;    // the lanes that take part
  uint64_t value = 0;   // a vote: 0 or 1
  int source = 0;       // the lane whose value is wanted
  uint64_t result = 0;  // that value, or the vote's ballot
};
// Waits for the lanes of the mask. The result.
uint64_t Meet(const Exchange& exchange);
int Lane();

template <typename T>
T Shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  Exchange exchange{Exchange::kShuffle, mask, 0, source, 0};
  std::memcpy(&exchange.value, &value, sizeof(T));
  const uint64_t result = Meet(exchange);
  std::memcpy(&value, &result, sizeof(T));
  return value;
}

}  // namespace sluice::cuda::emulation

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<std::decay_t<Parameters>...> copies(
      std::forward<Arguments>(arguments)...);
  return sluice::cuda::emulation::Enqueue(
      *config, [kernel, copies] { std::apply(kernel, copies); });
}

// --- Device side -------------------------------------------------------------

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

inline void __syncthreads() {
  sluice::cuda::emulation::BlockBarrier();
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  using sluice::cuda::emulation::Exchange;
  Meet(Exchange{Exchange::kMeet, mask, 0, 0, 0});
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source) {
  return sluice::cuda::emulation::Shuffle(mask, value, source & 31);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  namespace emulation = sluice::cuda::emulation;
  return emulation::Shuffle(mask, value, (emulation::Lane() ^ lanes) & 31);
}
// Lanes whose source would be beyond the warp keep their own value.
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes) {
  namespace emulation = sluice::cuda::emulation;
  const int lane = emulation::Lane();
  const int source = lane + static_cast<int>(lanes);
  return emulation::Shuffle(mask, value, source < 32 ? source : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using sluice::cuda::emulation::Exchange;
  const uint64_t vote = predicate != 0 ? 1 : 0;
  return static_cast<unsigned>(
      Meet(Exchange{Exchange::kVote, mask, vote, 0, 0}));
}

// On a device, to two units in the last place.
inline float __fdividef(float a, float b) {
  return a / b;
}

// One thread runs at a time, so that plain operations are atomic.
template <typename T>
T atomicAdd(T* at, T value) {
  return std::exchange(*at, static_cast<T>(*at + value));
}
template <typename T>
T atomicMin(T* at, T value) {
  return std::exchange(*at, value < *at ? value : *at);
}

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H_
