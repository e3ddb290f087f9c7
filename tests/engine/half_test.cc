// float16: its conversions against the definition.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "engine/dtype.h"
#include "engine/threads.h"

namespace sluice {
namespace {

// IEEE 754 binary16 with these bits.
double Value(int bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, exponent - 25));
}

bool Same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) ||
         (a == b && std::signbit(a) == std::signbit(b));
}

std::vector<Half> AllHalves() {
  std::vector<Half> all(1 << 16);
  for (int i = 0; i < 1 << 16; ++i) all[i].bits = static_cast<uint16_t>(i);
  return all;
}

TEST_CASE("every float16 is the float32 it says") {
  const std::vector<Half> halves = AllHalves();
  std::vector<float> floats(halves.size());
  // On a compute thread, where subnormals of float32 count as 0.
  ParallelFor(1, 1, [&](int64_t, int64_t) {
    for (int i = 0; i < 1 << 16; ++i) floats[i] = float(halves[i]);
  });
  int wrong = 0;
  for (int i = 0; i < 1 << 16; ++i) {
    wrong += Same(floats[i], Value(i)) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("float32 is rounded to the nearest float16, halves to even") {
  // Each float16, the points half way to the next, and what is beside both.
  std::vector<float> floats;
  std::vector<int> wanted;
  for (int i = 0; i < 0x7c00; ++i) {
    const auto here = static_cast<float>(Value(i));
    // Beyond the largest, the next would be 2^16.
    const double next = i == 0x7bff ? 65536 : Value(i + 1);
    const auto middle = static_cast<float>((Value(i) + next) / 2);
    const int even = i % 2 == 0 ? i : i + 1;
    for (const auto& [value, bits] :
         {std::pair(here, i),
          {std::nextafter(here, HUGE_VALF), i},
          {std::nextafter(middle, 0.0f), i},
          {middle, even},
          {std::nextafter(middle, HUGE_VALF), i + 1}}) {
      floats.push_back(value);
      wanted.push_back(bits);
      floats.push_back(-value);
      wanted.push_back(bits | 0x8000);
    }
  }
  floats.push_back(HUGE_VALF);
  wanted.push_back(0x7c00);
  floats.push_back(3e38f);
  wanted.push_back(0x7c00);
  int wrong = 0;
  for (size_t i = 0; i < floats.size(); ++i) {
    wrong += Half(floats[i]).bits == wanted[i] ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(float(Half(std::nanf("")))));
}

}  // namespace
}  // namespace sluice
