// Loads that are in flight together. A thread that uses what it has loaded
// before it loads more waits for memory each time, and a branch between loads
// makes it do so: so what decides about loads is known when a kernel is
// compiled (DispatchBools), and several are issued before the first is used
// (Ahead). scripts/sass_check.py holds kernels to it. Device code, which NVRTC
// takes as text.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_AHEAD_H_
#define SLUICE_KERNELS_CUDA_DEVICE_AHEAD_H_

#ifndef __CUDACC_RTC__
#include <type_traits>
#endif

#include "kernels/cuda/device/launch.h"

namespace sluice::cuda {

#ifndef __CUDACC_RTC__
// fn(std::bool_constant<value>()...).
template <typename Fn>
decltype(auto) DispatchBools(Fn&& fn) {
  return fn();
}
template <typename Fn, typename... Bools>
decltype(auto) DispatchBools(Fn&& fn, bool first, Bools... rest) {
  const auto with = [&](auto known) {
    return DispatchBools([&](auto... others) { return fn(known, others...); },
                         rest...);
  };
  return first ? with(std::true_type()) : with(std::false_type());
}
#endif

// finish(load(i), i) for i, i + step, ... before end, in this order. The loads
// of the next kAtOnce are issued before those of this kAtOnce are used: were
// they used in the same turn of the loop, the assembler would put each off
// until then, to save registers. What finish writes at one i, load must not
// read at another.
template <int kAtOnce, typename Index, typename LoadFn, typename Finish>
__device__ void Ahead(Index i, Index end, Index step, LoadFn load,
                      Finish finish) {
  constexpr Index kMore = kAtOnce - 1;
  if (i + kMore * step < end) {
    decltype(load(i)) now[kAtOnce], next[kAtOnce];
    SLUICE_UNROLLED
    for (int k = 0; k < kAtOnce; ++k) now[k] = load(i + k * step);
    SLUICE_ROLLED
    for (; i + (kAtOnce + kMore) * step < end; i += kAtOnce * step) {
      SLUICE_UNROLLED
      for (int k = 0; k < kAtOnce; ++k) {
        next[k] = load(i + (kAtOnce + k) * step);
      }
      SLUICE_UNROLLED
      for (int k = 0; k < kAtOnce; ++k) finish(now[k], i + k * step);
      SLUICE_UNROLLED
      for (int k = 0; k < kAtOnce; ++k) now[k] = next[k];
    }
    SLUICE_UNROLLED
    for (int k = 0; k < kAtOnce; ++k) finish(now[k], i + k * step);
    i += kAtOnce * step;
  }
  if constexpr (kMore > 0) {
    SLUICE_ROLLED
    for (; i < end; i += step) finish(load(i), i);
  }
}

// finish(load(i, count, whole), i, count, whole) for the packs of N of the
// elements [begin, end) that are one thread's of so many: at i, `count`
// elements exist. whole: packs that begin at multiples of N, as begin is, may
// be accessed at once.
template <int N, int kAtOnce, typename LoadFn, typename Finish>
__device__ void ForPacks(int64_t begin, int64_t end, int64_t thread,
                         int64_t threads, bool whole, LoadFn load,
                         Finish finish) {
  // NVRTC takes no generic lambdas.
  using Loaded = decltype(load(begin, end, whole));
  const int64_t full = whole ? end - end % N : begin;
  Ahead<kAtOnce>(
      begin + thread * N, full, threads * N,
      [&](int64_t i) { return load(i, int64_t{N}, true); },
      [&](const Loaded& loaded, int64_t i) {
        finish(loaded, i, int64_t{N}, true);
      });
  for (int64_t i = full + thread * N; i < end; i += threads * N) {
    finish(load(i, end - i, false), i, end - i, false);
  }
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_AHEAD_H_
