// Maps that may be applied to a batch in the place of its examples.
#ifndef SLUICE_IO_PIPELINE_ROWWISE_MAP_H_
#define SLUICE_IO_PIPELINE_ROWWISE_MAP_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/visibility.h"
#include "io/example.h"

namespace SLUICE_PUBLIC sluice {

// The tensor `name`, uint8 [..., n], becomes float32 x * factor + shift: one
// factor and shift for all, or n of each, by the last dimension.
struct BytesToFloats {
  std::string who;  // that is asked for, in messages
  std::string name;
  std::vector<float> factor;
  std::vector<float> shift;  // as many
};

// A map that treats all examples of a batch alike, so that it gives the same
// before and after Batch; Batch then applies it once per batch. It must put
// new tensors into the example and leave the bytes of the old ones alone.
struct RowwiseMap {
  std::function<void(Example&)> apply;
  // Set where the map only turns bytes into floats: training on a GPU copies
  // the bytes and maps them there (Dataset::LeaveBytes).
  std::optional<BytesToFloats> bytes_to_floats = {};
};

// Throws Error where it cannot be done to such a tensor.
void RequireBytes(const BytesToFloats& map, DType dtype, const Shape& shape);

RowwiseMap MapBytes(BytesToFloats map);

// uint8 -> float32, 0..255 -> 0..1.
RowwiseMap ScaleTo01(std::string name);

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_ROWWISE_MAP_H_
