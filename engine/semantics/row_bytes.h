// How large an element of a tensor's first dimension is.
#ifndef SLUICE_ENGINE_SEMANTICS_ROW_BYTES_H_
#define SLUICE_ENGINE_SEMANTICS_ROW_BYTES_H_

#include <cstddef>

#include "engine/dtype.h"
#include "engine/kernel.h"

namespace sluice {

// The type has a first dimension.
inline size_t RowBytes(const TensorType& type) {
  return static_cast<size_t>(type.shape.elements(1, type.shape.rank())) *
         SizeOf(type.dtype);
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_ROW_BYTES_H_
