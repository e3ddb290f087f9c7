// What a gather or scatter sees its operands as. The kernels of all devices
// share it.
#ifndef SLUICE_ENGINE_SEMANTICS_GATHER_SHAPE_H_
#define SLUICE_ENGINE_SEMANTICS_GATHER_SHAPE_H_

#include <cstdint>

#include "engine/attributes.h"
#include "engine/shape.h"

namespace sluice {

// params[batch, middle, size, inner], indices[batch, count] and a result (or
// updates) [batch, middle, count, inner].
struct GatherShape {
  int64_t batch = 0, middle = 0, size = 0, count = 0, inner = 0;
};

// From the attributes "axis" and "batch_dims".
inline GatherShape GatherShapeOf(const Attributes& attrs, const Shape& params,
                                 const Shape& indices) {
  const int rank = params.rank();
  const int shared = static_cast<int>(attrs.Int("batch_dims"));
  int axis = static_cast<int>(attrs.Int("axis"));
  if (axis < 0) axis += rank;
  return {.batch = params.elements(0, shared),
          .middle = params.elements(shared, axis),
          .size = params[axis],
          .count = indices.elements(shared, indices.rank()),
          .inner = params.elements(axis + 1, rank)};
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_GATHER_SHAPE_H_
