// The largest of each row, a block to a row. A row is read once for each of
// them: k is small, and the row in cache.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/index.h"
#include "kernels/cuda/row.h"

namespace sluice::cuda {
namespace {

// What elements are compared in: shuffles know no small integers.
template <typename T>
using ComparedAs = std::conditional_t<std::is_integral_v<T> && sizeof(T) < 4,
                                      int32_t, ComputeOf<T>>;

// NaN counts as larger than everything else.
template <typename V>
__device__ bool Exceeds(V a, V b) {
  return a > b || (a != a && b == b);
}

// An element of a row, or none.
template <typename V>
struct Ranked {
  V value = V(0);
  int64_t index = -1;
};

// Does a come before b? Of equal elements, the first does.
template <typename V>
__device__ bool IsBefore(const Ranked<V>& a, const Ranked<V>& b) {
  if (a.index < 0 || b.index < 0) return b.index < 0 && a.index >= 0;
  if (Exceeds(a.value, b.value)) return true;
  return !Exceeds(b.value, a.value) && a.index < b.index;
}

// The first of all threads', in every thread. As BlockReduce; `shared` has an
// element for each warp.
template <typename V>
__device__ Ranked<V> FirstOfBlock(Ranked<V> own, Ranked<V>* shared) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const Ranked<V> other = {ShuffleXor(own.value, lanes),
                             ShuffleXor(own.index, lanes)};
    if (IsBefore(other, own)) own = other;
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = own;
  Barrier();  // all warps' results are there
  own = shared[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    if (IsBefore(shared[w], own)) own = shared[w];
  }
  Barrier();  // all have read, before anyone writes again
  return own;
}

template <typename T>
__global__ void TopKKernel(TopKShape s, const T* x, T* values,
                           int64_t* indices) {
  using V = ComparedAs<T>;
  auto* shared = SharedMemory<Ranked<V>>();
  for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const T* line = x + row * s.n;
    Ranked<V> last;
    for (int64_t place = 0; place < s.k; ++place) {
      Ranked<V> best;
      for (int64_t i = threadIdx.x; i < s.n; i += blockDim.x) {
        const Ranked<V> element = {
            static_cast<V>(static_cast<ComputeOf<T>>(line[i])), i};
        const bool open = place == 0 || IsBefore(last, element);
        if (open && IsBefore(element, best)) best = element;
      }
      last = FirstOfBlock(best, shared);
      if (threadIdx.x == 0) {
        values[row * s.k + place] = line[last.index];
        indices[row * s.k + place] = last.index;
      }
    }
  }
}

template <typename T, typename I>
__global__ void InTopKKernel(TopKShape s, const T* x, const I* targets,
                             bool* y) {
  using C = ComputeOf<T>;
  int64_t* shared = SharedMemory<int64_t>();
  for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const T* line = x + row * s.n;
    const int64_t at = targets[row];
    const bool exists = at >= 0 && at < s.n;
    const C target = exists ? static_cast<C>(line[at]) : C(0);
    int64_t above = 0;
    for (int64_t i = threadIdx.x; i < s.n; i += blockDim.x) {
      if (Exceeds(static_cast<C>(line[i]), target)) ++above;
    }
    above =
        BlockReduce(above, shared, [](int64_t a, int64_t b) { return a + b; });
    if (threadIdx.x == 0) y[row] = exists && above < s.k && target == target;
  }
}

Grid RowGrid(const TopKShape& shape, size_t per_warp) {
  const int threads = RowThreads(shape.n);
  return {std::min(shape.rows, kMostRowBlocks), threads,
          static_cast<size_t>(threads / kWarp) * per_warp};
}

}  // namespace

Status TopK(const TopKShape& shape, DType dtype, const void* x, void* values,
            int64_t* indices, cudaStream_t stream) {
  return DispatchAmong<float, double, Half, BFloat16, int8_t, uint8_t, int32_t,
                       int64_t>(dtype, [&]<typename E>(TypeTag<E>) {
    using T = DeviceTypeOf<E>;
    return Launch("TopK", RowGrid(shape, sizeof(Ranked<ComparedAs<T>>)), stream,
                  TopKKernel<T>, shape, static_cast<const T*>(x),
                  static_cast<T*>(values), indices);
  });
}

Status InTopK(const TopKShape& shape, DType dtype, const void* x,
              DType index_dtype, const void* targets, bool* y,
              cudaStream_t stream) {
  return DispatchFloating(dtype, [&]<typename E>(TypeTag<E>) {
    return DispatchIndex(index_dtype, [&]<typename I>(TypeTag<I>) {
      using T = DeviceTypeOf<E>;
      return Launch("InTopK", RowGrid(shape, sizeof(int64_t)), stream,
                    InTopKKernel<T, I>, shape, static_cast<const T*>(x),
                    static_cast<const I*>(targets), y);
    });
  });
}

}  // namespace sluice::cuda
