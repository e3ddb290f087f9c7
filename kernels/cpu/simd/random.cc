// Philox on vectors: each lane of 64 bits holds one of a block's four words, so
// that a product of 32 bits fits.
#include "kernels/cpu/simd/random.h"

#include "kernels/cpu/simd/loop.h"
#include "kernels/cpu/simd/tables.h"
#include "kernels/cpu/simd/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::SLUICE_ISA {
namespace {

using Words = Vector<uint64_t>;
constexpr int kBlocks = kLanes<uint64_t>;  // at a time
constexpr uint64_t kLow = 0xffffffffu;

// The products of the lower halves.
SLUICE_INLINE Words Multiply(const Words& a, const Words& b) {
#if defined(__AVX512F__)
  return (Words)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Words)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
  return (Words)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & kLow) * (b & kLow);
#endif
}

// Lanes of a and b in turns.
SLUICE_INLINE void Interleave(const Words& a, const Words& b, uint64_t* out) {
#if defined(__AVX512F__)
  Store(out, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
  Store(out + 8, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
#elif defined(__AVX2__)
  Store(out, __builtin_shufflevector(a, b, 0, 4, 1, 5));
  Store(out + 4, __builtin_shufflevector(a, b, 2, 6, 3, 7));
#else
  Store(out, __builtin_shufflevector(a, b, 0, 2));
  Store(out + 2, __builtin_shufflevector(a, b, 1, 3));
#endif
}

// Two vectors of blocks at a time, whose products overlap.
constexpr int kGroups = 2;
constexpr int64_t kAtOnce = kGroups * kBlocks;

// kAtOnce blocks from counter `first`.
SLUICE_INLINE void PhiloxBlocks(const uint32_t key[2], uint32_t salt,
                                uint64_t first, uint32_t* bits) {
  Words c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    Words counter = Broadcast<uint64_t>(first + g * kBlocks);
    for (int i = 0; i < kBlocks; ++i) counter[i] += i;
    c0[g] = counter & kLow;
    c1[g] = counter >> 32;
    c2[g] = Words{};
    c3[g] = Broadcast<uint64_t>(salt);
  }
  uint32_t k0 = key[0], k1 = key[1];
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    for (int g = 0; g < kGroups; ++g) {
      // Only lower halves are multiplied: the upper ones need not be cleared.
      const Words p0 = Multiply(c0[g], Broadcast<uint64_t>(0xD2511F53u));
      const Words p1 = Multiply(c2[g], Broadcast<uint64_t>(0xCD9E8D57u));
      c0[g] = (p1 >> 32) ^ c1[g] ^ Broadcast<uint64_t>(k0);
      c1[g] = p1;
      c2[g] = (p0 >> 32) ^ c3[g] ^ Broadcast<uint64_t>(k1);
      c3[g] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  // The words of a block in memory, on little-endian machines.
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  alignas(64) uint64_t pairs[2 * kBlocks];
  for (int g = 0; g < kGroups; ++g) {
    Interleave((c0[g] & kLow) | (c1[g] << 32), (c2[g] & kLow) | (c3[g] << 32),
               pairs);
    __builtin_memcpy(bits + 4 * kBlocks * g, pairs, sizeof(pairs));
  }
}

void Bits(const uint32_t key[2], uint32_t salt, uint64_t first, int64_t blocks,
          uint32_t* bits) {
  int64_t i = 0;
  for (; i + kAtOnce <= blocks; i += kAtOnce) {
    PhiloxBlocks(key, salt, first + i, bits + 4 * i);
  }
  if (i == blocks) return;
  uint32_t last[4 * kAtOnce];
  PhiloxBlocks(key, salt, first + i, last);
  for (int64_t k = 0; k < 4 * (blocks - i); ++k) bits[4 * i + k] = last[k];
}

void Dropout(const uint32_t* bits, uint32_t threshold, float scale,
             const float* x, float* y, bool* mask, int64_t n) {
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = x[i] * scale;
    y[i] = bits[i] >= threshold ? scaled : 0.0f;
  }
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) mask[i] = bits[i] >= threshold;
}

void Uniform(const uint32_t* bits, float low, float range, float greatest,
             float* y, int64_t n) {
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    // Signed: only those convert on every instruction set.
    const float u = static_cast<float>(static_cast<int32_t>(bits[i] >> 8));
    y[i] = u * 0x1p-24f * range;
  }
  // A loop of its own: multiplied and added at once, the product would not be
  // rounded, and the bits would depend on the instruction set.
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const float value = y[i] + low;
    y[i] = value < greatest ? value : greatest;
  }
}

}  // namespace

void AddRandom(simd::SimdKernels& table) noexcept {
  table.random = {Bits, Dropout, Uniform};
}

}  // namespace sluice::SLUICE_ISA
