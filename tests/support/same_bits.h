// Whether two trainings came to the same.
#ifndef SLUICE_TESTS_SUPPORT_SAME_BITS_H_
#define SLUICE_TESTS_SUPPORT_SAME_BITS_H_

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"

namespace sluice::testing {

inline std::vector<NamedTensor> TrainedTensors(const std::string& log_dir,
                                               int64_t step) {
  const auto checkpoint = ReadCheckpoint(
      fmt::format("{}/checkpoint-{}.safetensors", log_dir, step));
  REQUIRE_MESSAGE(checkpoint.ok(), checkpoint.status().message());
  REQUIRE(!checkpoint->tensors.empty());
  return checkpoint->tensors;
}

// All tensors of both at that step, to the bit.
inline bool SameBits(const std::string& log_dir, const std::string& other,
                     int64_t step) {
  const auto a = TrainedTensors(log_dir, step), b = TrainedTensors(other, step);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const NamedTensor& x, const NamedTensor& y) {
                      return x.name == y.name && x.tensor.BitEqual(y.tensor);
                    });
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SAME_BITS_H_
