// A random order that is the same in every run.
#ifndef SLUICE_APPS_SLUICE_DATA_RANDOM_ORDER_H_
#define SLUICE_APPS_SLUICE_DATA_RANDOM_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "io/counter_random.h"

namespace sluice::tool {

// The numbers from 0 to n - 1, each once; n below 2^32.
inline std::vector<uint32_t> RandomOrder(size_t n) {
  constexpr uint64_t kSeed = 0;
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), uint32_t{0});
  CounterRandom random(kSeed);
  for (auto left = static_cast<uint32_t>(n); left > 1; --left) {
    std::swap(order[left - 1], order[random.Below(left)]);
  }
  return order;
}

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_RANDOM_ORDER_H_
