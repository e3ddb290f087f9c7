// Walking along a line of elements, `stride` apart, with the threads of a
// block: 16 bytes at a time where the line is whole packs.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_ROW_H_
#define SLUICE_KERNELS_CUDA_DEVICE_ROW_H_

#include "engine/semantics/row_run.h"
#include "kernels/cuda/device/element.h"
#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

// Do all rows of n elements, one after another from p on, begin at 16 bytes?
template <typename T>
bool RowsAreWhole(const void* p, int64_t n) {
  return IsAligned<T>(p) && n % kPack<T> == 0;
}

// Threads of a block for a line of n elements: by the size alone.
inline int RowThreads(int64_t n) {
  return n <= 2 * kWarp ? kWarp : n <= 1024 ? 4 * kWarp : kMostRowThreads;
}

// Blocks of a kernel that gives each a line at a time.
inline constexpr int64_t kMostRowBlocks = 1 << 16;

// The sum of what a thread adds of a line. kRuns: of one that HasRowRuns.
template <typename C, bool kRuns>
struct RowSum {
  C total = C(0), run = C(0);
  int left = kRowRun;  // of the run

  __device__ void Add(C x) {
    run += x;
    if constexpr (kRuns) {
      if (--left > 0) return;
      total += run;
      run = C(0);
      left = kRowRun;
    }
  }
  __device__ C Result() const { return kRuns ? total + run : run; }
};

// fn(i, x[i * stride]) for this thread's share of n elements. whole: the line
// is contiguous whole packs.
template <typename T, typename Fn>
__device__ void ForRow(const T* x, int64_t n, int64_t stride, bool whole,
                       Fn fn) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  if (whole) {
    for (int64_t i = threadIdx.x * kN; i < n; i += blockDim.x * kN) {
      const Pack<T, kN> pack = LoadPack<T>(x + i, kN, true);
      for (int k = 0; k < kN; ++k) fn(i + k, static_cast<C>(pack.at[k]));
    }
  } else {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      fn(i, static_cast<C>(x[i * stride]));
    }
  }
}

// y[i * stride] = fn(i, x[i * stride]) likewise; y may be x.
template <typename T, typename Fn>
__device__ void MapRow(const T* x, T* y, int64_t n, int64_t stride, bool whole,
                       Fn fn) {
  using C = ComputeOf<T>;
  constexpr int kN = kPack<T>;
  if (whole) {
    for (int64_t i = threadIdx.x * kN; i < n; i += blockDim.x * kN) {
      Pack<T, kN> pack = LoadPack<T>(x + i, kN, true);
      for (int k = 0; k < kN; ++k) {
        pack.at[k] = T(fn(i + k, static_cast<C>(pack.at[k])));
      }
      StorePack(pack, y + i, kN, true);
    }
  } else {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      y[i * stride] = T(fn(i, static_cast<C>(x[i * stride])));
    }
  }
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_ROW_H_
