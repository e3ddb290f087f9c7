// When results are stored past the caches, and how: an ordinary store reads the
// line first, for nothing.
#ifndef SLUICE_KERNELS_CPU_STREAMING_H_
#define SLUICE_KERNELS_CPU_STREAMING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/tensor.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

// An array of this size pushes its own beginning out of the last-level cache
// that cores of a server share, so its reader comes too late anyway.
inline constexpr size_t kStreamedBytes = size_t{16} << 20;

inline bool IsAligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % kAlignment == 0;
}

// to = from, by all compute threads. The ranges must not overlap.
void CopyBytes(const void* from, void* to, size_t bytes);

// Has fn(i, count, out) compute elements [0, n) of y into `out`, some that stay
// in the L1 cache at a time, and stores them past the caches. y is aligned, its
// elements have `size` bytes, at least 4.
template <typename Fn>
void ComputeStreamed(int64_t n, int64_t size, char* y, const Fn& fn) {
  constexpr int64_t kBlock = 8192;  // bytes
  alignas(kAlignment) char block[kBlock];
  const int64_t step = kBlock / size;
  for (int64_t i = 0; i < n; i += step) {
    const int64_t count = std::min(step, n - i);
    fn(i, count, static_cast<char*>(block));
    Simd().stream_part(reinterpret_cast<const float*>(block),
                       reinterpret_cast<float*>(y + i * size),
                       count * size / static_cast<int64_t>(sizeof(float)));
  }
  Simd().fence();
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_STREAMING_H_
