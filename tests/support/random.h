// Random numbers for generators of cases.
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_H_
#define SLUICE_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>
#include <random>

namespace sluice::testing {

// The same on every machine, for a seed.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  double Real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  // True once in so many.
  bool Chance(int64_t of) { return Between(1, of) == 1; }

 private:
  std::mt19937 engine_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RANDOM_H_
