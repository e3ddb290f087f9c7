// Stands in for the CUDA header of this name where kernels/cuda is compiled as
// C++ for the emulation (tests/cuda/emulator.h): the part of it that our
// kernels use, with the same names and meanings.
#ifndef SLUICE_TESTS_CUDA_INCLUDE_CUDA_RUNTIME_H_
#define SLUICE_TESTS_CUDA_INCLUDE_CUDA_RUNTIME_H_

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

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)  // NOLINT
      : x(x_), y(y_), z(z_) {}
};

// --- Host side ---------------------------------------------------------------

enum cudaError_t { cudaSuccess = 0, cudaErrorLaunchFailure = 719 };
// What the last launch that failed did wrong.
const char* cudaGetErrorString(cudaError_t error);

using cudaStream_t = struct CUstream_st*;  // launches are over on return
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace sluice::cuda::emulation {

// Runs `thread` once for each thread of the grid.
cudaError_t RunGrid(const cudaLaunchConfig_t& config,
                    const std::function<void()>& thread);

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
  return sluice::cuda::emulation::RunGrid(*config,
                                          [&] { std::apply(kernel, copies); });
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

// One thread runs at a time, so that plain operations are atomic.
template <typename T>
T atomicAdd(T* at, T value) {
  return std::exchange(*at, static_cast<T>(*at + value));
}
template <typename T>
T atomicMin(T* at, T value) {
  return std::exchange(*at, value < *at ? value : *at);
}

#endif  // SLUICE_TESTS_CUDA_INCLUDE_CUDA_RUNTIME_H_
