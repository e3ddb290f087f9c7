// What CastPad does, the same on all devices.
#ifndef SLUICE_ENGINE_SEMANTICS_ROW_PADDING_H_
#define SLUICE_ENGINE_SEMANTICS_ROW_PADDING_H_

#include <cstdint>

#include "engine/kernel.h"

namespace sluice {

// Rows of `from` elements become rows of `to`, zeros behind. A row is what one
// index of the dimensions before the padded one selects. Plain data: it is
// passed to kernels.
struct RowPadding {
  int64_t rows = 0, from = 0, to = 0;
};

inline RowPadding RowPaddingOf(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  const Shape& y = spec.outputs[0].shape;
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  return {y.elements(0, axis), x.elements(axis, x.rank()),
          y.elements(axis, y.rank())};
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_ROW_PADDING_H_
