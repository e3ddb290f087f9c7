// Random numbers for data pipelines: a function of (key, counter) on integers
// alone, so that they are the same on every machine.
#ifndef SLUICE_IO_COUNTER_RANDOM_H_
#define SLUICE_IO_COUNTER_RANDOM_H_

#include <cstdint>

namespace sluice {

// SplitMix64's output function (Steele, Lea and Flood 2014): a bijection that
// makes neighbouring inputs look unrelated.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A value for each (seed, a, b); order matters.
constexpr uint64_t HashKey(uint64_t seed, uint64_t a, uint64_t b = 0) {
  return Mix64(Mix64(Mix64(seed) ^ a) + b);
}

// The sequence of one key.
class CounterRandom {
 public:
  explicit constexpr CounterRandom(uint64_t key) : state_(key) {}

  constexpr uint64_t Next() {
    const uint64_t value = Mix64(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return value;
  }
  // In [0, n), n < 2^32; biased by less than n / 2^32.
  constexpr uint32_t Below(uint32_t n) {
    return static_cast<uint32_t>(((Next() >> 32) * n) >> 32);
  }
  // In [low, high].
  constexpr int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(Below(high - low + 1));
  }

 private:
  uint64_t state_;
};

}  // namespace sluice

#endif  // SLUICE_IO_COUNTER_RANDOM_H_
