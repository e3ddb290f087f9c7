// Tensors of a list taken as if they lay end to end, so that work on them is
// cut by size over all of them.
#ifndef SLUICE_KERNELS_CPU_TENSOR_LIST_H_
#define SLUICE_KERNELS_CPU_TENSOR_LIST_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernel.h"

namespace sluice::cpu {

class TensorList {
 public:
  explicit TensorList(std::span<const TensorType> tensors) {
    int64_t end = 0;
    for (const TensorType& tensor : tensors) {
      ends_.push_back(end += tensor.shape.elements());
    }
  }
  int64_t elements() const { return ends_.empty() ? 0 : ends_.back(); }

  // Calls fn(tensor, its first element, number of elements) for the part
  // [begin, end) of them all.
  template <typename Fn>
  void ForEach(int64_t begin, int64_t end, Fn fn) const {
    size_t i = static_cast<size_t>(
        std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; begin < end; ++i) {
      const int64_t start = i == 0 ? 0 : ends_[i - 1];
      const int64_t stop = std::min(end, ends_[i]);
      fn(static_cast<int>(i), begin - start, stop - begin);
      begin = stop;
    }
  }

 private:
  std::vector<int64_t> ends_;
};

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_TENSOR_LIST_H_
