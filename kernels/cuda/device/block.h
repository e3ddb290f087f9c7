// Reductions over the threads of a warp and of a block, as trees of a fixed
// shape: the same bits however threads are scheduled.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_BLOCK_H_
#define SLUICE_KERNELS_CUDA_DEVICE_BLOCK_H_

#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

// The values of the warp's lanes combined, in every lane. `combine` must be
// commutative: the two lanes of a pair call it in either order.
template <typename S, typename Combine>
__device__ S WarpReduce(S value, Combine combine) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value = combine(value, ShuffleXor(value, lanes));
  }
  return value;
}

// The shared memory that BlockReduce needs, in elements of S.
inline constexpr int kBlockReduceShared = 32;

// The values of all threads combined, in every thread. Blocks are of whole
// warps; every thread must come here. `shared` is kBlockReduceShared elements,
// free to be used again afterwards, at once.
template <typename S, typename Combine>
__device__ S BlockReduce(S value, S* shared, Combine combine) {
  value = WarpReduce(value, combine);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return value;
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  Barrier();  // all warps' results are there
  value = shared[0];
  for (int w = 1; w < warps; ++w) value = combine(value, shared[w]);
  Barrier();  // all have read, before anyone writes again
  return value;
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_BLOCK_H_
