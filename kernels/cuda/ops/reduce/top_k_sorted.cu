// The largest of each row where there are many of them: the row is sorted, by
// the positions of its elements, and the first k are taken. Chunks are sorted
// by counting, for each element, how many come before it, and merged pair by
// pair, as keys of rows are (sorted_rows.cu).
#include <utility>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/ranked.h"
#include "kernels/cuda/ops/array/index.h"
#include "kernels/cuda/ops/reduce/top_k_sorted.h"

namespace sluice::cuda {
namespace {

constexpr int kChunk = 256;  // elements, and threads of a block

// order[row, place]: where the elements are, each row's chunks in order.
template <typename T>
__global__ void __launch_bounds__(kChunk)
    OrderChunksKernel(TopKShape s, const T* x, int64_t* order) {
  using Element = Ranked<RankOf<T>>;
  Element* chunk = SharedMemory<Element>();
  const int64_t chunks_of_row = (s.n + kChunk - 1) / kChunk;
  for (int64_t c = blockIdx.x; c < s.rows * chunks_of_row; c += gridDim.x) {
    const int64_t row = Quotient(c, chunks_of_row);
    const int64_t first = (c - row * chunks_of_row) * kChunk;
    const int64_t n = s.n - first < kChunk ? s.n - first : int64_t{kChunk};
    Element own;
    if (threadIdx.x < n) {
      own = RankedAt(x + row * s.n, 1, first + threadIdx.x);
      chunk[threadIdx.x] = own;
    }
    Barrier();  // all elements are there
    if (threadIdx.x < n) {
      int64_t before = 0;
      for (int64_t i = 0; i < n; ++i) {
        before += Precedes(chunk[i], own, false) ? 1 : 0;
      }
      order[row * s.n + first + before] = own.at;
    }
    Barrier();  // all have read, before the next chunk is written
  }
}

// Pairs of ordered runs of `width` within a row become runs of twice that.
template <typename T>
__global__ void MergeOrdersKernel(TopKShape s, const T* x, const int64_t* order,
                                  int64_t* merged, int64_t width) {
  for (int64_t i = GlobalThread(); i < s.rows * s.n; i += GlobalThreads()) {
    const int64_t row = Quotient(i, s.n);
    const T* line = x + row * s.n;
    const int64_t* places = order + row * s.n;
    const int64_t place = i - row * s.n;
    const Ranked<RankOf<T>> own = RankedAt(line, 1, places[place]);
    const int64_t run = Quotient(place, width);
    const int64_t other = (run ^ 1) * width;
    // The first of the other run that comes behind it.
    int64_t low = other < s.n ? other : s.n;
    int64_t high = other + width < s.n ? other + width : s.n;
    const int64_t begin = low;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (Precedes(RankedAt(line, 1, places[middle]), own, false)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    merged[row * s.n + run / 2 * 2 * width + (place - run * width) +
           (low - begin)] = own.at;
  }
}

template <typename T>
__global__ void TakeFirstKernel(TopKShape s, const T* x, const int64_t* order,
                                T* values, int64_t* indices) {
  for (int64_t i = GlobalThread(); i < s.rows * s.k; i += GlobalThreads()) {
    const int64_t row = Quotient(i, s.k);
    const int64_t at = order[row * s.n + (i - row * s.k)];
    values[i] = x[row * s.n + at];
    indices[i] = at;
  }
}

template <typename T>
Status SortAndTake(const TopKShape& s, const T* x, T* values, int64_t* indices,
                   void* workspace, cudaStream_t stream) {
  constexpr char kWho[] = "TopK";
  const int64_t elements = s.rows * s.n;
  auto* order = static_cast<int64_t*>(workspace);
  int64_t* other = order + elements;
  Grid grid = GridFor(s.rows * CeilDiv(s.n, int64_t{kChunk}) * kChunk, kChunk);
  grid.shared_bytes = kChunk * sizeof(Ranked<RankOf<T>>);
  SLUICE_RETURN_IF_ERROR(
      Launch(kWho, grid, stream, OrderChunksKernel<T>, s, x, order));
  for (int64_t width = kChunk; width < s.n; width *= 2) {
    SLUICE_RETURN_IF_ERROR(Launch(kWho, GridFor(elements), stream,
                                  MergeOrdersKernel<T>, s, x, order, other,
                                  width));
    std::swap(order, other);
  }
  return Launch(kWho, GridFor(s.rows * s.k), stream, TakeFirstKernel<T>, s, x,
                order, values, indices);
}

}  // namespace

size_t SortedTopKWorkspace(const TopKShape& s) {
  return 2 * static_cast<size_t>(s.rows) * static_cast<size_t>(s.n) *
         sizeof(int64_t);
}

Status SortedTopK(const TopKShape& shape, DType dtype, const void* x,
                  void* values, int64_t* indices, void* workspace,
                  cudaStream_t stream) {
  return DispatchNumeric(dtype, [&]<typename E>(TypeTag<E>) {
    using T = DeviceTypeOf<E>;
    return SortAndTake(shape, static_cast<const T*>(x), static_cast<T*>(values),
                       indices, workspace, stream);
  });
}

}  // namespace sluice::cuda
