// Many arrays as the work of one launch: they are cut into chunks, which blocks
// take one at a time (array_chunks.h).
#ifndef SLUICE_KERNELS_CUDA_DEVICE_ARRAY_LIST_H_
#define SLUICE_KERNELS_CUDA_DEVICE_ARRAY_LIST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/kernel.h"

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
    list.chunks += CeilDiv(array.elements, ArrayList::kChunk);
  }
  return lists;
}

// Launches list after list, such as ArrayLists. `place` says where the i-th of
// all arrays lies.
template <typename List, typename Place, typename Launch>
Status LaunchLists(std::vector<List>& lists, Place place, Launch launch) {
  int i = 0;
  for (List& list : lists) {
    for (int k = 0; k < list.count; ++k, ++i) place(i, list.at[k]);
    SLUICE_RETURN_IF_ERROR(launch(list));
  }
  return {};
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_ARRAY_LIST_H_
