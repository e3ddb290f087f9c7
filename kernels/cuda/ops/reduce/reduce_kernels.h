// The kernels of reductions, templates over reducer and dtype. A block combines
// a segment of a row, or of 32 columns; a few threads a short row.
//
// A reducer R of elements T has a State and
//   static State Start();             of no elements
//   static State From(ComputeOf<T>);  of one
//   State operator()(State, State);   commutative
//   static T Finish(State, int64_t count);  or of the dtype of results
#ifndef SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_KERNELS_H_
#define SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_KERNELS_H_

#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/block.h"
#include "kernels/cuda/device/row.h"
#include "kernels/cuda/ops/reduce/reduce.h"

namespace sluice::cuda {

// What a pass reads, results of another or else elements, and what it writes.
struct PassEnds {
  bool from_states = false;
  bool to_states = false;
  int64_t count = 1;  // of elements in a final result
};

// x[i] as a state, whatever it holds.
template <typename R, typename T>
__device__ typename R::State StateAt(const void* x, int64_t i,
                                     const PassEnds& ends) {
  using State = typename R::State;
  return ends.from_states
             ? static_cast<const State*>(x)[i]
             : R::From(static_cast<ComputeOf<T>>(static_cast<const T*>(x)[i]));
}
template <typename R, typename T>
__device__ void Store(const typename R::State& state, void* y, int64_t i,
                      const PassEnds& ends) {
  if (ends.to_states) {
    static_cast<typename R::State*>(y)[i] = state;
  } else {
    using Y = decltype(R::Finish(state, ends.count));
    static_cast<Y*>(y)[i] = R::Finish(state, ends.count);
  }
}

// --- Rows --------------------------------------------------------------------

// A block per segment of a row. whole: segments are whole packs.
template <typename R, typename T>
__global__ void RowsKernel(const void* x, void* y, ReducePass p, PassEnds ends,
                           bool whole) {
  using State = typename R::State;
  constexpr R combine{};
  for (int64_t result = blockIdx.x; result < p.shape.outer * p.segments;
       result += gridDim.x) {
    const int64_t row = Quotient(result, p.segments);
    const int64_t first = (result - row * p.segments) * p.segment;
    const int64_t count = scalar::Minimum()(p.segment, p.shape.n - first);
    const int64_t at = row * p.shape.n + first;
    State state = R::Start();
    if (ends.from_states) {
      for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        state = combine(state, static_cast<const State*>(x)[at + i]);
      }
    } else {
      ForRow(
          static_cast<const T*>(x) + at, count, 1, whole,
          [&](int64_t, ComputeOf<T> v) { state = combine(state, R::From(v)); });
    }
    state = BlockReduce(state, SharedMemory<State>(), combine);
    if (threadIdx.x == 0) Store<R, T>(state, y, result, ends);
  }
}

// `lanes` threads of a warp, a power of two, per row, which is one segment.
template <typename R, typename T>
__global__ void ShortRowsKernel(const void* x, void* y, ReducePass p,
                                PassEnds ends, int lanes) {
  constexpr R combine{};
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int rows = static_cast<int>(blockDim.x) / lanes;  // of the block
  for (int64_t first = int64_t{blockIdx.x} * rows; first < p.shape.outer;
       first += int64_t{gridDim.x} * rows) {
    const int64_t row = first + threadIdx.x / lanes;
    typename R::State state = R::Start();
    if (row < p.shape.outer) {
      for (int64_t i = lane; i < p.shape.n; i += lanes) {
        state = combine(state, StateAt<R, T>(x, row * p.shape.n + i, ends));
      }
    }
    for (int step = lanes / 2; step > 0; step /= 2) {
      state = combine(state, ShuffleXor(state, step));
    }
    if (lane == 0 && row < p.shape.outer) Store<R, T>(state, y, row, ends);
  }
}

// --- Columns -----------------------------------------------------------------

inline constexpr int kColumns = 32;    // of a block
inline constexpr int kColumnRows = 8;  // rows that a block reads at a time

// A block per segment of kColumns columns: thread t takes column t % kColumns
// of every kColumnRows-th row, so that a warp reads a row's neighbours.
template <typename R, typename T>
__global__ void ColumnsKernel(const void* x, void* y, ReducePass p,
                              PassEnds ends) {
  using State = typename R::State;
  constexpr R combine{};
  State* states = SharedMemory<State>();
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t inner = p.shape.inner;
  const int64_t groups = CeilDiv(inner, kColumns);
  for (int64_t task = blockIdx.x; task < p.shape.outer * p.segments * groups;
       task += gridDim.x) {
    const int64_t result_row = Quotient(task, groups);
    const int64_t j = (task - result_row * groups) * kColumns + column;
    const int64_t row = Quotient(result_row, p.segments);
    const int64_t first = (result_row - row * p.segments) * p.segment;
    const int64_t count = scalar::Minimum()(p.segment, p.shape.n - first);
    const int64_t at = (row * p.shape.n + first) * inner + j;
    State state = R::Start();
    if (j < inner) {
      for (int64_t i = lane; i < count; i += kColumnRows) {
        state = combine(state, StateAt<R, T>(x, at + i * inner, ends));
      }
    }
    states[threadIdx.x] = state;
    Barrier();  // a column's rows are in several warps
    if (lane == 0) {
      for (int k = 1; k < kColumnRows; ++k) {
        state = combine(state, states[k * kColumns + column]);
      }
      if (j < inner) Store<R, T>(state, y, result_row * inner + j, ends);
    }
    Barrier();  // before the next task writes where the first warp reads
  }
}

// --- Launching ---------------------------------------------------------------

inline constexpr int64_t kShortRow = 256;  // elements, at most

// Threads for a short row of n elements: up to four elements each while a warp
// is enough.
inline int LanesFor(int64_t n) {
  int lanes = 1;
  while (lanes < kWarp && 4 * lanes < n) lanes *= 2;
  return lanes;
}

template <typename R, typename T>
Status LaunchPass(const char* name, const void* x, void* y, const ReducePass& p,
                  const PassEnds& ends, cudaStream_t stream) {
  using State = typename R::State;
  if (p.shape.inner == 1 && p.shape.n <= kShortRow) {
    const int lanes = LanesFor(p.shape.n);
    return Launch(name, GridFor(p.shape.outer * lanes), stream,
                  ShortRowsKernel<R, T>, x, y, p, ends, lanes);
  }
  if (p.shape.inner == 1) {
    const bool whole = p.segment % kPack<T> == 0 &&
                       RowsAreWhole<T>(x, p.shape.n) && !ends.from_states;
    return Launch(name,
                  {std::min(p.results(), kMostRowBlocks),
                   RowThreads(std::min(p.shape.n, p.segment)),
                   kBlockReduceShared * sizeof(State)},
                  stream, RowsKernel<R, T>, x, y, p, ends, whole);
  }
  const int64_t groups = CeilDiv(p.shape.inner, kColumns);
  return Launch(
      name,
      {std::min(p.shape.outer * p.segments * groups, kMostRowBlocks),
       kColumns * kColumnRows, kColumns * kColumnRows * sizeof(State)},
      stream, ColumnsKernel<R, T>, x, y, p, ends);
}

// The results of passes follow each other in the workspace.
template <typename R, typename T>
Status LaunchReduce(const void* x, void* y, const ReducePlan& plan,
                    void* workspace, cudaStream_t stream) {
  auto* states = static_cast<typename R::State*>(workspace);
  PassEnds ends = {.count = plan.count};
  for (const ReducePass& pass : plan.passes) {
    ends.to_states = &pass != &plan.passes.back();
    void* to = ends.to_states ? states : y;
    SLUICE_RETURN_IF_ERROR(
        (LaunchPass<R, T>(R::kName, x, to, pass, ends, stream)));
    if (!ends.to_states) break;
    x = states;
    states += pass.results();
    ends.from_states = true;
  }
  return {};
}

template <typename R, typename T>
Reduction ReductionOf() {
  return {LaunchReduce<R, T>, sizeof(typename R::State)};
}

// Integers and bool; reduce_integer.cu.
Reduction FindIntegerReduce(std::string_view op, DType dtype);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_REDUCE_REDUCE_KERNELS_H_
