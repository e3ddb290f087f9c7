// Stores that go past the caches, for results too large to be found there
// again: the line is not read before it is written, which saves a third of a
// copy's traffic. A fence must follow before another thread is told.
#ifndef SLUICE_KERNELS_CPU_SIMD_STREAM_H_
#define SLUICE_KERNELS_CPU_SIMD_STREAM_H_

#include "kernels/cpu/simd/vector.h"

namespace sluice::SLUICE_ISA {
namespace {

// Eight floats at a time, as one vector or two: what the memory-bound loops
// work on, since wider ones would not be faster.
#if defined(__AVX__)
inline constexpr int kStreamBytes = 32;
#else
inline constexpr int kStreamBytes = 16;
#endif
inline constexpr int kStreamLanes = kStreamBytes / 4;
using StreamVector __attribute__((vector_size(kStreamBytes))) = float;
using StreamBits __attribute__((vector_size(kStreamBytes))) = int32_t;
using StoredStreamVector
    __attribute__((vector_size(kStreamBytes), aligned(4), may_alias)) = float;

SLUICE_INLINE StreamVector LoadStream(const float* p) {
  return *reinterpret_cast<const StoredStreamVector*>(p);
}
SLUICE_INLINE void StoreStream(float* p, StreamVector v) {
  *reinterpret_cast<StoredStreamVector*>(p) = v;
}

// p is aligned to the vector.
SLUICE_INLINE void StorePastCache(float* p, StreamVector v) {
#if defined(__clang__)
  __builtin_nontemporal_store(v, reinterpret_cast<StreamVector*>(p));
#elif defined(__AVX__)
  __builtin_ia32_movntps256(p, v);
#elif defined(__SSE__)
  __builtin_ia32_movntps(p, v);
#else
  StoreStream(p, v);
#endif
}

template <bool kPast>
SLUICE_INLINE void StoreAs(float* p, StreamVector v) {
  if constexpr (kPast) {
    StorePastCache(p, v);
  } else {
    StoreStream(p, v);
  }
}

SLUICE_INLINE void FenceStores() {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}

// A mask with one bit for each lane, set where the lane is all ones.
SLUICE_INLINE unsigned BitsOf(StreamBits lanes) {
#if defined(__AVX__)
  return static_cast<unsigned>(
      __builtin_ia32_movmskps256(reinterpret_cast<StreamVector>(lanes)));
#elif defined(__SSE__)
  return static_cast<unsigned>(
      __builtin_ia32_movmskps(reinterpret_cast<StreamVector>(lanes)));
#else
  unsigned bits = 0;
  for (int i = 0; i < kStreamLanes; ++i) bits |= (lanes[i] & 1u) << i;
  return bits;
#endif
}

// All ones in the lanes whose bit is set, counted from bit `first`.
SLUICE_INLINE StreamBits LanesOf(unsigned bits, int first) {
  StreamBits bit;
  for (int i = 0; i < kStreamLanes; ++i) bit[i] = 1 << (first + i);
  const StreamBits all = static_cast<int32_t>(bits) - StreamBits{};
  return (all & bit) == bit;
}

}  // namespace
}  // namespace sluice::SLUICE_ISA

#endif  // SLUICE_KERNELS_CPU_SIMD_STREAM_H_
