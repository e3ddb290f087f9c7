// How kernels of this folder are launched, and what their threads share. The
// test suite compiles the same files as C++ and runs them in an emulation
// (tests/kernels/cuda/emulation/emulator.h), so kernels keep to what is here:
// no `<<<>>>`, no
// `__shared__` variables, and of CUDA's device functions only those that
// tests/kernels/cuda/emulation/include has. Inline PTX needs a plain
// alternative beside it.
//
// Kernels do their work in steps of the whole grid, so that any number of
// blocks gives the same bits.
//
// A launcher is a plain function of device pointers, sizes and a stream. It
// does not wait: the Status is that of the launch.
//
// NVRTC takes the device's half of this file as text, for generated kernels,
// as it does block.h and element.h: it has no headers.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_LAUNCH_H_
#define SLUICE_KERNELS_CUDA_DEVICE_LAUNCH_H_

#ifdef __CUDACC_RTC__
using int64_t = long;
using uint32_t = unsigned;
#else
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "engine/ceil_div.h"
#include "engine/status.h"
#include "kernels/cuda/runtime/check.h"
#endif

namespace sluice::cuda {

// Put before a loop that must not be unrolled, since its body is large; and
// before one that must be, since the arrays that it indexes are to be in
// registers.
#ifdef __CUDACC__
#define SLUICE_ROLLED _Pragma("unroll 1")
#define SLUICE_UNROLLED _Pragma("unroll")
#else
#define SLUICE_ROLLED
#define SLUICE_UNROLLED
#endif

inline constexpr int kWarp = 32;

#ifndef __CUDACC_RTC__

// One dimension is enough: kernels find their place from the index.
struct Grid {
  int64_t blocks = 0;
  int threads = 0;          // per block
  size_t shared_bytes = 0;  // per block
};

// The one way to launch. `name` is for messages. No blocks is no work.
template <typename... Parameters>
Status Launch(const char* name, Grid grid, cudaStream_t stream,
              void (*kernel)(Parameters...),
              std::type_identity_t<Parameters>... arguments) {
  if (grid.blocks == 0) return {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (error == cudaSuccess) return {};
  return Failure(error, std::string("kernel '") + name + "'");
}

// For loops over `items` in steps of the whole grid: enough blocks to fill any
// GPU of today several times over, few enough that each has work.
inline Grid GridFor(int64_t items, int threads = 256) {
  constexpr int64_t kMostBlocks = 4096;
  return {std::min(CeilDiv(items, threads), kMostBlocks), threads};
}

#endif  // __CUDACC_RTC__

// The thread's number in the grid, and the number of threads.
__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t GlobalThreads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// i / n, neither negative. 64-bit division is slow on a GPU, and seldom needed.
__device__ inline int64_t Quotient(int64_t i, int64_t n) {
  return ((i | n) >> 32) == 0
             ? static_cast<uint32_t>(i) / static_cast<uint32_t>(n)
             : i / n;
}

// The block's Grid::shared_bytes, 16-byte aligned. Holds nothing at first.
template <typename T>
__device__ T* SharedMemory() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char sluice_shared_memory[];
  return reinterpret_cast<T*>(sluice_shared_memory);
#else
  return static_cast<T*>(emulation::SharedMemory());
#endif
}

// Every thread of the block must come here.
__device__ inline void Barrier() {
  __syncthreads();
}

// The mask of all lanes of a warp, which must all come to the next two
// functions.
inline constexpr unsigned kAllLanes = 0xffffffffu;
// The value of the lane whose number differs in the bits of `lanes`.
template <typename T>
__device__ T ShuffleXor(T value, int lanes) {
  return __shfl_xor_sync(kAllLanes, value, lanes);
}
// The value of another lane.
template <typename T>
__device__ T ShuffleFrom(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_LAUNCH_H_
