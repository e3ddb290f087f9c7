// Random bits of float32 kernels, by the vector code.
#ifndef SLUICE_KERNELS_CPU_RANDOM_BITS_H_
#define SLUICE_KERNELS_CPU_RANDOM_BITS_H_

#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/kernel.h"
#include "engine/semantics/random.h"
#include "engine/threads.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

inline RandomStream StreamOf(const StepContext& step, uint64_t name_hash) {
  return {step.seed, name_hash, step.step, step.replica};
}

// Calls fn(i, count, bits), side by side, with the bits of elements i to
// i + count of n, for some elements at a time that stay in the L1 cache.
// Element 0 is number `first`, a multiple of kRandomAlignment, of the stream.
template <typename Fn>
void ForRandomBits(const RandomStream& stream, int64_t n, const Fn& fn,
                   int64_t first = 0) {
  constexpr int64_t kAtOnce = 1024;  // a multiple of a block's four
  constexpr int64_t kGrain = 8 * kAtOnce;
  ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t bits[kAtOnce];
    for (int64_t i = begin; i < end; i += kAtOnce) {
      const int64_t count = std::min(kAtOnce, end - i);
      Simd().random.bits(stream.key().data(), stream.salt(), (first + i) / 4,
                         CeilDiv(count, 4), bits);
      fn(i, count, static_cast<const uint32_t*>(bits));
    }
  });
}

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_RANDOM_BITS_H_
