// The frame that all fused kernels share, generated (fused_source.h) and
// interpreted (fused.cu): who takes which elements, how operands are fetched,
// and how sums are made. NVRTC takes this file as text.
//
// A program is a type P with
//
//   P::T, P::C, P::kN   element, compute type, elements that are taken at once
//   p.a                 the arguments
//   p.Fetch(i, count, whole)
//                       a P::Fetched: what it needs of the kN elements from i
//                       on, of which `count` exist; whole: packs may be
//                       accessed at once
//   p(fetched, i, count, whole)
//                       computes them and stores them; the values to be summed
//
// A thread fetches what it needs of its elements before it stores any, so an
// output may be an input of the same size.
#ifndef SLUICE_KERNELS_CUDA_FUSED_FUSED_DEVICE_H_
#define SLUICE_KERNELS_CUDA_FUSED_FUSED_DEVICE_H_

#include "engine/semantics/scalar.h"
#include "kernels/cuda/device/ahead.h"
#include "kernels/cuda/device/block.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fused/fused_arguments.h"

namespace sluice::cuda {

// --- Operands ----------------------------------------------------------------

// An element's index in each dimension.
struct Indices {
  int64_t at[kMostFusedDims];
};
__device__ inline Indices IndicesOf(const FusedArguments& a, int rank,
                                    int64_t i) {
  Indices index;
  for (int d = rank - 1; d > 0; --d) {
    // 64-bit division is slow on a GPU, and seldom needed.
    const int64_t rest =
        a.elements <= 0x7fffffff
            ? static_cast<uint32_t>(i) / static_cast<uint32_t>(a.dims[d])
            : i / a.dims[d];
    index.at[d] = i - rest * a.dims[d];
    i = rest;
  }
  index.at[0] = i;
  return index;
}
__device__ inline int64_t OffsetOf(const FusedArguments& a, int input, int rank,
                                   const Indices& index) {
  int64_t offset = 0;
  for (int d = 0; d < rank; ++d) offset += index.at[d] * a.strides[input][d];
  return offset;
}

// An input of one element.
template <typename T>
__device__ ComputeOf<T> LoadScalar(const FusedArguments& a, int input) {
  return static_cast<ComputeOf<T>>(*static_cast<const T*>(a.inputs[input]));
}
// An input that has as many elements as the result.
template <typename T>
__device__ Pack<T, kPack<T>> LoadElements(const FusedArguments& a, int input,
                                          int64_t i, int64_t count,
                                          bool whole) {
  return LoadPack<T>(static_cast<const T*>(a.inputs[input]) + i, count, whole);
}
// An input that repeats, but not along the innermost dimension (kAlong), or
// along that too. `index` is that of element i.
template <typename T, bool kAlong>
__device__ Pack<T, kPack<T>> LoadRepeated(const FusedArguments& a, int input,
                                          int rank, const Indices& index,
                                          int64_t i, int64_t count,
                                          bool whole) {
  constexpr int kN = kPack<T>;
  const T* x = static_cast<const T*>(a.inputs[input]);
  Pack<T, kN> pack = {};
  if (!a.rows) {
    for (int k = 0; k < kN && k < count; ++k) {
      pack.at[k] =
          Load(x + OffsetOf(a, input, rank, IndicesOf(a, rank, i + k)));
    }
    return pack;
  }
  x += OffsetOf(a, input, rank, index);
  if constexpr (kAlong) {
    return LoadPack<T>(x, count, whole);
  } else {
    const T value = Load(x);
    for (int k = 0; k < kN; ++k) pack.at[k] = value;
    return pack;
  }
}

template <typename T>
__device__ void StoreElements(const FusedArguments& a, int output,
                              const Pack<T, kPack<T>>& y, int64_t i,
                              int64_t count, bool whole) {
  StorePack(y, static_cast<T*>(a.outputs[output]) + i, count, whole);
}

// --- Frames ------------------------------------------------------------------

template <typename P>
__device__ void ForEachPack(const P& program) {
  using Fetched = typename P::Fetched;
  ForPacks<P::kN, 1>(
      0, program.a.elements, GlobalThread(), GlobalThreads(), program.a.whole,
      [&](int64_t i, int64_t count, bool whole) {
        return program.Fetch(i, count, whole);
      },
      [&](const Fetched& fetched, int64_t i, int64_t count, bool whole) {
        program(fetched, i, count, whole);
      });
}

// The values of a pack that a sum is to add.
template <typename P>
__device__ Pack<typename P::C, P::kN> ValuesOf(const P& program, int64_t i,
                                               int64_t count) {
  const bool whole = program.a.whole;
  return program(program.Fetch(i, count, whole), i, count, whole);
}

template <typename P>
__device__ void StoreSum(const FusedArguments& a, int64_t at,
                         typename P::C sum) {
  using T = typename P::T;
  using C = typename P::C;
  if (a.sum.states) {
    static_cast<C*>(a.sums)[at] = sum;
  } else {
    static_cast<T*>(a.sums)[at] = T(static_cast<C>(a.sum.scale) * sum);
  }
}

// `lanes` threads per segment of a row: one, a warp, or the block.
template <typename P>
__device__ void SumTrailing(const P& program) {
  using C = typename P::C;
  constexpr int kN = P::kN;
  const FusedArguments& a = program.a;
  const auto add = [](C x, C y) { return x + y; };
  const int lanes = a.sum.lanes;
  const int teams = static_cast<int>(blockDim.x) / lanes;
  const int team = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int64_t task = static_cast<int64_t>(blockIdx.x) * teams + team;
       task < a.sum.rows * a.sum.segments;
       task += static_cast<int64_t>(gridDim.x) * teams) {
    const int64_t row = task / a.sum.segments;
    const int64_t begin = task % a.sum.segments * a.sum.segment;
    const int64_t end = scalar::Minimum()(begin + a.sum.segment, a.sum.columns);
    C sum = 0;
    for (int64_t j = begin + lane * kN; j < end; j += lanes * kN) {
      const Pack<C, kN> v = ValuesOf(program, row * a.sum.columns + j, end - j);
      for (int k = 0; k < kN; ++k) {
        if (k < end - j) sum += v.at[k];
      }
    }
    if (lanes > kWarp) {
      sum = BlockReduce(sum, SharedMemory<C>(), add);
    } else if (lanes == kWarp) {
      sum = WarpReduce(sum, add);
    }
    if (lane == 0) StoreSum<P>(a, task, sum);
  }
}

// A block per segment of rows and `lanes` packs of columns: thread t takes pack
// t % lanes of every (threads / lanes)-th row.
template <typename P>
__device__ void SumLeading(const P& program) {
  using C = typename P::C;
  constexpr int kN = P::kN;
  const FusedArguments& a = program.a;
  C* shared = SharedMemory<C>();  // kN per thread
  const int threads = static_cast<int>(blockDim.x);
  const int t = static_cast<int>(threadIdx.x), lanes = a.sum.lanes;
  const int64_t columns = a.sum.columns;
  const int64_t groups = (columns + lanes * kN - 1) / (lanes * kN);
  for (int64_t task = blockIdx.x; task < groups * a.sum.segments;
       task += gridDim.x) {
    const int64_t j = (task % groups * lanes + t % lanes) * kN;
    const int64_t begin = task / groups * a.sum.segment;
    const int64_t end = scalar::Minimum()(begin + a.sum.segment, a.sum.rows);
    C sum[kN] = {};
    if (j < columns) {
      for (int64_t row = begin + t / lanes; row < end; row += threads / lanes) {
        const Pack<C, kN> v = ValuesOf(program, row * columns + j, columns - j);
        for (int k = 0; k < kN; ++k) sum[k] += v.at[k];
      }
    }
    for (int k = 0; k < kN; ++k) shared[k * threads + t] = sum[k];
    for (int half = threads / 2; half >= lanes; half /= 2) {
      Barrier();  // the upper half's sums are there
      if (t < half) {
        for (int k = 0; k < kN; ++k) {
          shared[k * threads + t] += shared[k * threads + t + half];
        }
      }
    }
    if (t < lanes) {  // these sums are the thread's own
      for (int k = 0; k < kN && k < columns - j; ++k) {
        StoreSum<P>(a, task / groups * columns + j + k,
                    shared[k * threads + t]);
      }
    }
    Barrier();  // before the next task writes what others still read
  }
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_FUSED_FUSED_DEVICE_H_
