// Many arrays as the work of one launch: they are cut into chunks, of which
// blocks take one at a time and find by its number whose it is.
#ifndef SLUICE_KERNELS_CUDA_ARRAY_LIST_H_
#define SLUICE_KERNELS_CUDA_ARRAY_LIST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernel.h"
#include "engine/scalar.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/launch.h"

namespace sluice::cuda {

// Plain data: a kernel's parameter. One of 8 KB wants CUDA 12.1 or later.
struct ArrayList {
  static constexpr int kMost = 256;
  static constexpr int64_t kChunk = 1 << 13;  // elements; whole packs

  struct Array {
    const void* from = nullptr;
    void* to = nullptr;  // where the kernel writes an array for each
    int64_t elements = 0;
    int32_t first_chunk = 0;        // ascending
    DType dtype = DType::kFloat32;  // of `from`
  };
  Array at[kMost];
  int count = 0;
  int64_t chunks = 0;

  // For a kernel that goes through ForChunks.
  Grid grid() const {
    constexpr int64_t kMostBlocks = 1 << 12;
    return {std::min(chunks, kMostBlocks), 256};
  }
};

// Tensors cut into lists of at most kMost, in their order.
inline std::vector<ArrayList> ListsOf(std::span<const TensorType> tensors) {
  std::vector<ArrayList> lists;
  for (const TensorType& tensor : tensors) {
    if (lists.empty() || lists.back().count == ArrayList::kMost) {
      lists.emplace_back();
    }
    ArrayList& list = lists.back();
    ArrayList::Array& array = list.at[list.count++];
    array.elements = tensor.shape.elements();
    array.dtype = tensor.dtype;
    array.first_chunk = static_cast<int32_t>(list.chunks);
    list.chunks += (array.elements + ArrayList::kChunk - 1) / ArrayList::kChunk;
  }
  return lists;
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

#endif  // SLUICE_KERNELS_CUDA_ARRAY_LIST_H_
