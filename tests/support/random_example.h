// Random examples, for what keeps them.
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_EXAMPLE_H_
#define SLUICE_TESTS_SUPPORT_RANDOM_EXAMPLE_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "io/example.h"
#include "tests/support/random_bytes.h"

namespace sluice::testing {

// Of any dtype and rank; some dimensions are 0.
inline Tensor RandomTensor(std::mt19937& random) {
  const auto dtype = static_cast<DType>(Below(random, kNumDTypes));
  const size_t rank = Below(random, Shape::kMaxRank + 1);
  Shape shape;
  for (size_t i = 0; i < rank; ++i) {
    const size_t most = rank > 3 ? 2 : 6;
    const size_t least = Once(random, 8) ? 0 : 1;
    shape.push_back(static_cast<int64_t>(least + Below(random, most)));
  }
  Tensor tensor(dtype, shape);
  auto* bytes = static_cast<uint8_t*>(tensor.raw());
  const unsigned values = dtype == DType::kBool ? 2 : 256;
  std::generate_n(bytes, tensor.bytes(),
                  [&] { return static_cast<uint8_t>(Below(random, values)); });
  return tensor;
}

inline Example RandomExample(std::mt19937& random) {
  Example example;
  for (size_t n = Below(random, 5); n > 0; --n) {
    example.Set(RandomBytes(random, Below(random, 12)), RandomTensor(random));
  }
  example.set_passed_over(Once(random, 3) ? RandomInt(random) & INT64_MAX : 0);
  example.set_whole_rows(Once(random, 3) ? RandomInt(random) & INT64_MAX : 0);
  return example;
}

// All that an example holds, bit by bit and in the same order.
inline bool Same(const Example& a, const Example& b) {
  return a.passed_over() == b.passed_over() &&
         a.whole_rows() == b.whole_rows() &&
         std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && x.second.BitEqual(y.second);
                    });
}

// Changes every byte in place, as a map may.
inline void Spoil(Example* example) {
  for (auto& [name, tensor] : *example) {
    auto* bytes = static_cast<uint8_t*>(tensor.raw());
    std::for_each_n(bytes, tensor.bytes(), [](uint8_t& b) { b ^= 1; });
  }
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RANDOM_EXAMPLE_H_
