// Random bits, the same as those of engine/semantics/random.h, many blocks at a
// time.
#ifndef SLUICE_KERNELS_CPU_SIMD_RANDOM_H_
#define SLUICE_KERNELS_CPU_SIMD_RANDOM_H_

#include <cstdint>

namespace sluice::simd {

struct RandomKernels {
  // bits[4 * i ... + 3] = Philox4x32-10 at the counter (low and high half of
  // first + i, 0, salt), for i in [0, blocks).
  void (*bits)(const uint32_t key[2], uint32_t salt, uint64_t first,
               int64_t blocks, uint32_t* bits);
  // mask = bits >= threshold;  y = mask ? x * scale : 0.
  void (*dropout)(const uint32_t* bits, uint32_t threshold, float scale,
                  const float* x, float* y, bool* mask, int64_t n);
  // y = low + u * range with u from the upper 24 bits, in [0, 1), but at most
  // `greatest`.
  void (*uniform)(const uint32_t* bits, float low, float range, float greatest,
                  float* y, int64_t n);
};

}  // namespace sluice::simd

#endif  // SLUICE_KERNELS_CPU_SIMD_RANDOM_H_
