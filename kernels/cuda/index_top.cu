// A block per row, which is read from cache after the first time.
#include "kernels/cuda/index_top.h"

#include <algorithm>

#include "engine/scalar.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/ranked.h"
#include "kernels/cuda/row.h"

namespace sluice::cuda {
namespace {

template <typename T>
__global__ void TopKKernel(const T* x, T* values, int64_t* indices,
                           TopShape shape) {
  using State = Ranked<RankOf<T>>;
  constexpr Foremost foremost{};
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* line = x + row * shape.n;
    State last;
    for (int64_t j = 0; j < shape.k; ++j) {
      State next;
      for (int64_t i = threadIdx.x; i < shape.n; i += blockDim.x) {
        const State element = {
            static_cast<RankOf<T>>(static_cast<ComputeOf<T>>(line[i])), i};
        if (j == 0 || Precedes(last, element, false)) {
          next = foremost(next, element);
        }
      }
      last = BlockReduce(next, SharedMemory<State>(), foremost);
      if (threadIdx.x == 0) {
        values[row * shape.k + j] = line[last.at];
        indices[row * shape.k + j] = last.at;
      }
    }
  }
}

template <typename T>
Status LaunchTopK(const void* x, void* values, int64_t* indices,
                  const TopShape& shape, cudaStream_t stream) {
  return Launch("TopK",
                {std::min(shape.rows, kMostRowBlocks), RowThreads(shape.n),
                 kBlockReduceShared * sizeof(Ranked<RankOf<T>>)},
                stream, TopKKernel<T>, static_cast<const T*>(x),
                static_cast<T*>(values), indices, shape);
}

template <typename T, typename I>
__global__ void InTopKKernel(const T* predictions, const I* targets, bool* y,
                             TopShape shape) {
  using C = ComputeOf<T>;
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* line = predictions + row * shape.n;
    const auto target = static_cast<int64_t>(targets[row]);
    const bool is_class = target >= 0 && target < shape.n;
    const C rated = static_cast<C>(line[is_class ? target : 0]);
    int64_t above = 0;
    for (int64_t i = threadIdx.x; i < shape.n; i += blockDim.x) {
      const C other = static_cast<C>(line[i]);
      above += other > rated || other != other ? 1 : 0;
    }
    above = BlockReduce(above, SharedMemory<int64_t>(), scalar::Add());
    if (threadIdx.x == 0) {
      y[row] = is_class && above < shape.k && rated == rated;
    }
  }
}

template <typename T, typename I>
Status LaunchInTopK(const void* predictions, const void* targets, bool* y,
                    const TopShape& shape, cudaStream_t stream) {
  return Launch("InTopK",
                {std::min(shape.rows, kMostRowBlocks), RowThreads(shape.n),
                 kBlockReduceShared * sizeof(int64_t)},
                stream, InTopKKernel<T, I>, static_cast<const T*>(predictions),
                static_cast<const I*>(targets), y, shape);
}

}  // namespace

TopKLauncher FindTopK(DType dtype) {
  return DispatchNumeric(dtype, []<typename E>(TypeTag<E>) -> TopKLauncher {
    return LaunchTopK<DeviceTypeOf<E>>;
  });
}

InTopKLauncher FindInTopK(DType dtype, DType targets) {
  return DispatchFloating(dtype, [&]<typename E>(TypeTag<E>) {
    return DispatchIndex(targets, []<typename I>(TypeTag<I>) -> InTopKLauncher {
      return LaunchInTopK<DeviceTypeOf<E>, I>;
    });
  });
}

}  // namespace sluice::cuda
