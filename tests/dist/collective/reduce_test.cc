// The sums of collectives, element by element against doubles: lengths and
// places that no vector divides, and values at the ends of what types hold.
#include "dist/collective/reduce.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace sluice::dist {
namespace {

// Mostly usual numbers, some of the largest, the smallest and none.
template <typename T>
T Draw(std::mt19937& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random()) << (random() % 8);
  } else {
    const auto usual = static_cast<float>(std::normal_distribution<>()(random));
    switch (random() % 16) {
      case 0:
        return T(usual * 1e-7f);
      case 1:
        return T(usual * 1e4f);
      case 2:
        return T(std::numeric_limits<float>::infinity());
      case 3:
        return T(-0.0f);
      default:
        return T(usual);
    }
  }
}

template <typename T>
double Value(T x) {
  if constexpr (std::is_same_v<T, double>) return x;
  return static_cast<double>(static_cast<float>(x));
}

// What `exact`, of float32s, is in the type in which T is computed, and then in
// T: float32's sums and quotients are rounded once by way of double.
template <typename T>
T Rounded(double exact) {
  if constexpr (std::is_same_v<T, double>) return exact;
  return T(static_cast<float>(exact));
}

template <typename T>
bool SameBits(T a, T b) {
  using Bits = std::array<std::byte, sizeof(T)>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b) ||
         (std::isnan(Value(a)) && std::isnan(Value(b)));
}

TEST_CASE_TEMPLATE("sums and quotients of any length and place", T, float,
                   double, Half, BFloat16) {
  std::mt19937 random(7);
  const DType dtype = DTypeOf<T>::value;
  for (int trial = 0; trial < 400; ++trial) {
    const size_t count = random() % (trial % 4 == 0 ? 700 : 40);
    const size_t at = random() % 5, from = random() % 5;
    std::vector<T> sum(at + count + 3), addend(from + count + 3);
    for (T& x : sum) x = Draw<T>(random);
    for (T& x : addend) x = Draw<T>(random);
    const std::vector<T> before = sum;
    const int divisor = trial % 2 == 0 ? 1 << (random() % 8)
                                       : 1 + static_cast<int>(random() % 99);
    const bool either = random() % 2 == 0;
    const auto add = either ? AddToEither : AddTo;
    add(dtype, sum.data() + at, addend.data() + from,
        static_cast<int64_t>(count));
    std::vector<T> mean = sum;
    DivideBy(dtype, mean.data() + at, static_cast<int64_t>(count), divisor);
    for (size_t i = 0; i < sum.size(); ++i) {
      CAPTURE(i);
      CAPTURE(count);
      CAPTURE(divisor);
      const bool within = i >= at && i < at + count;
      const T whole =
          within ? Rounded<T>(Value(before[i]) + Value(addend[i - at + from]))
                 : before[i];
      const T part = within ? Rounded<T>(Value(whole) / divisor) : before[i];
      REQUIRE(SameBits(sum[i], whole));
      REQUIRE(SameBits(mean[i], part));
    }
  }
}

TEST_CASE_TEMPLATE("integers wrap", T, int32_t, int64_t) {
  using Unsigned = std::make_unsigned_t<T>;
  std::mt19937 random(8);
  for (size_t count = 0; count < 70; ++count) {
    std::vector<T> sum(count), addend(count);
    for (T& x : sum) x = static_cast<T>(Draw<Unsigned>(random));
    for (T& x : addend) x = static_cast<T>(Draw<Unsigned>(random));
    const std::vector<T> before = sum;
    AddTo(DTypeOf<T>::value, sum.data(), addend.data(),
          static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) {
      REQUIRE(sum[i] == static_cast<T>(static_cast<Unsigned>(before[i]) +
                                       static_cast<Unsigned>(addend[i])));
    }
  }
}

}  // namespace
}  // namespace sluice::dist
