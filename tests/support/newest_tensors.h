// What a training has left.
#ifndef SLUICE_TESTS_SUPPORT_NEWEST_TENSORS_H_
#define SLUICE_TESTS_SUPPORT_NEWEST_TENSORS_H_

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"

namespace sluice::testing {

using TensorsByName = std::map<std::string, Tensor>;

// Of the newest checkpoint of a folder, which there must be.
inline TensorsByName NewestTensors(const std::string& log_dir) {
  const auto restored =
      CheckpointManager::ForReading(log_dir).RestoreNewest().ValueOrThrow();
  REQUIRE(restored.has_value());
  TensorsByName tensors;
  for (const auto& [name, tensor] : restored->checkpoint.tensors) {
    tensors[name] = tensor;
  }
  return tensors;
}

// The step of the newest checkpoint of a folder, which there must be.
inline int64_t SavedStep(const std::string& log_dir) {
  const std::vector<int64_t> steps =
      CheckpointManager::ForReading(log_dir).Steps().ValueOrThrow();
  REQUIRE(!steps.empty());
  return steps.back();
}

inline void CheckSameTensors(const TensorsByName& a, const TensorsByName& b) {
  REQUIRE(!a.empty());
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    CAPTURE(name);
    CHECK(tensor.BitEqual(b.at(name)));
  }
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_NEWEST_TENSORS_H_
