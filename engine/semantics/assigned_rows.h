// Where in its variable Assign begins to write.
#ifndef SLUICE_ENGINE_SEMANTICS_ASSIGNED_ROWS_H_
#define SLUICE_ENGINE_SEMANTICS_ASSIGNED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/attributes.h"
#include "engine/kernel.h"
#include "engine/semantics/row_bytes.h"

namespace sluice {

// In bytes from its start; `attrs` are Assign's.
inline size_t FirstAssigned(const Attributes& attrs,
                            const TensorType& variable) {
  const int64_t row = std::max<int64_t>(attrs.Int("first_row"), 0);
  if (row == 0) return 0;
  return static_cast<size_t>(row) * RowBytes(variable);
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_ASSIGNED_ROWS_H_
