// Random integers for data pipelines, from Philox (engine/semantics/random.h):
// functions of a key and a counter, the same on every machine.
#ifndef SLUICE_IO_COUNTER_RANDOM_H_
#define SLUICE_IO_COUNTER_RANDOM_H_

#include <cstdint>

#include "engine/semantics/random.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// 64 random bits for each (seed, a, b); order matters.
constexpr uint64_t HashKey(uint64_t seed, uint64_t a, uint64_t b = 0) {
  const PhiloxBlock block =
      Philox({static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32),
              static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{block[1]} << 32 | block[0];
}

// The sequence of one key.
class CounterRandom {
 public:
  explicit constexpr CounterRandom(uint64_t key)
      : key_{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)} {}

  constexpr uint32_t Next() {
    const int lane = static_cast<int>(count_ % 4);
    if (lane == 0) {
      const uint64_t i = count_ / 4;
      block_ = Philox(
          {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0},
          key_);
    }
    ++count_;
    return block_[lane];
  }
  // A number in [0, n); no probability is off by more than 2^-32.
  constexpr uint32_t Below(uint32_t n) {
    return static_cast<uint32_t>((uint64_t{Next()} * n) >> 32);
  }
  // A number in [0, 1).
  constexpr double Fraction() { return Next() * 0x1p-32; }
  // A number in [low, high].
  constexpr int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(Below(high - low + 1));
  }

 private:
  PhiloxKey key_;
  PhiloxBlock block_{};
  uint64_t count_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_IO_COUNTER_RANDOM_H_
