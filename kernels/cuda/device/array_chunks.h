// Lets blocks find their chunks of many arrays. Device code.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_ARRAY_CHUNKS_H_
#define SLUICE_KERNELS_CUDA_DEVICE_ARRAY_CHUNKS_H_

#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/array_list.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

// The grid for a kernel that goes through ForChunks.
inline Grid GridFor(const ArrayList& list) {
  constexpr int64_t kMostBlocks = 1 << 12;
  return {std::min(list.chunks, kMostBlocks), 256};
}

// The array that a chunk belongs to: the last that begins at or before it.
template <typename Array>
__device__ int ArrayOf(const Array* arrays, int count, int64_t chunk) {
  int low = 0, high = count;  // in [low, high)
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (arrays[middle].first_chunk <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Calls fn(array, begin, end) with the elements of each chunk of the block's.
template <typename Fn>
__device__ void ForChunks(const ArrayList& list, Fn fn) {
  for (int64_t chunk = blockIdx.x; chunk < list.chunks; chunk += gridDim.x) {
    const ArrayList::Array& array =
        list.at[ArrayOf(list.at, list.count, chunk)];
    const int64_t begin = (chunk - array.first_chunk) * ArrayList::kChunk;
    fn(array, begin,
       scalar::Minimum()(begin + ArrayList::kChunk, array.elements));
  }
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_ARRAY_CHUNKS_H_
