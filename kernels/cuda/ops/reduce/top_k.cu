// The largest of each row, a block to a row. A row is read once for each of
// them, while k is small, and the row in cache; else it is sorted.
#include <algorithm>

#include "kernels/cuda/device/bad_index_device.h"
#include "kernels/cuda/device/block.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/ranked.h"
#include "kernels/cuda/device/row.h"
#include "kernels/cuda/ops/array/index.h"
#include "kernels/cuda/ops/reduce/top_k_sorted.h"

namespace sluice::cuda {
namespace {

// By the number of elements that are looked at: sorting looks at some 300 for
// each, one block of a row at k / threads for each, with a wait of all of it.
constexpr int64_t kMostOneByOne = 64;

template <typename T>
__global__ void TopKKernel(TopKShape s, const T* x, T* values,
                           int64_t* indices) {
  using Element = Ranked<RankOf<T>>;
  constexpr Foremost foremost{};
  for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const T* line = x + row * s.n;
    Element last;
    for (int64_t place = 0; place < s.k; ++place) {
      Element best;
      for (int64_t i = threadIdx.x; i < s.n; i += blockDim.x) {
        const Element element = RankedAt(line, 1, i);
        const bool open = place == 0 || Precedes(last, element, false);
        if (open) best = foremost(best, element);
      }
      last = BlockReduce(best, SharedMemory<Element>(), foremost);
      if (threadIdx.x == 0) {
        values[row * s.k + place] = line[last.at];
        indices[row * s.k + place] = last.at;
      }
    }
  }
}

template <typename T, typename I>
__global__ void InTopKKernel(TopKShape s, const T* x, const I* targets, bool* y,
                             BadIndex* bad) {
  using C = ComputeOf<T>;
  int64_t* shared = SharedMemory<int64_t>();
  for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const T* line = x + row * s.n;
    const int64_t at = targets[row];
    const bool exists = at >= 0 && at < s.n;
    const C target = exists ? static_cast<C>(line[at]) : C(0);
    int64_t above = 0;
    for (int64_t i = threadIdx.x; i < s.n; i += blockDim.x) {
      const C value = static_cast<C>(line[i]);
      if (value > target || value != value) ++above;  // as if NaN were largest
    }
    above =
        BlockReduce(above, shared, [](int64_t a, int64_t b) { return a + b; });
    if (threadIdx.x == 0) {
      if (!exists) ReportBadIndex(bad, row, at);
      y[row] = exists && above < s.k && target == target;
    }
  }
}

Grid RowGrid(const TopKShape& shape, size_t per_warp) {
  const int threads = RowThreads(shape.n);
  return {std::min(shape.rows, kMostRowBlocks), threads,
          static_cast<size_t>(threads / kWarp) * per_warp};
}

}  // namespace

size_t TopKWorkspace(const TopKShape& shape) {
  return shape.k > kMostOneByOne ? SortedTopKWorkspace(shape) : 0;
}

Status TopK(const TopKShape& shape, DType dtype, const void* x, void* values,
            int64_t* indices, void* workspace, cudaStream_t stream) {
  if (shape.k == 0) return {};  // however many rows there are
  if (shape.k > kMostOneByOne) {
    return SortedTopK(shape, dtype, x, values, indices, workspace, stream);
  }
  return DispatchNumeric(dtype, [&]<typename E>(TypeTag<E>) {
    using T = DeviceTypeOf<E>;
    return Launch("TopK", RowGrid(shape, sizeof(Ranked<RankOf<T>>)), stream,
                  TopKKernel<T>, shape, static_cast<const T*>(x),
                  static_cast<T*>(values), indices);
  });
}

Status InTopK(const TopKShape& shape, DType dtype, const void* x,
              DType index_dtype, const void* targets, bool* y, BadIndex* bad,
              cudaStream_t stream) {
  return DispatchFloating(dtype, [&]<typename E>(TypeTag<E>) {
    return DispatchIndex(index_dtype, [&]<typename I>(TypeTag<I>) {
      using T = DeviceTypeOf<E>;
      return Launch("InTopK", RowGrid(shape, sizeof(int64_t)), stream,
                    InTopKKernel<T, I>, shape, static_cast<const T*>(x),
                    static_cast<const I*>(targets), y, bad);
    });
  });
}

}  // namespace sluice::cuda
