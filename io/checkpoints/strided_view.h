// An array that lies in somebody's bytes with any strides, and its copy in
// order.
#ifndef SLUICE_IO_CHECKPOINTS_STRIDED_VIEW_H_
#define SLUICE_IO_CHECKPOINTS_STRIDED_VIEW_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/status.h"
#include "engine/tensor.h"

namespace sluice {

// Counts and strides are in elements. Element (i, j, ...) is the storage's
// element offset + i * strides[0] + j * strides[1] + ...; elements may be
// shared.
struct StridedView {
  DType dtype = DType::kFloat32;
  std::string_view storage;  // whole elements, anyhow aligned
  Shape shape;
  std::array<int64_t, Shape::kMaxRank> strides{};
  int64_t offset = 0;
};

// kDataLoss unless the shape is that of a possible tensor, nothing is negative
// and every element is one of the storage's: what must hold before Gather.
Status CheckView(const StridedView& view);

// The elements in row-major order, in memory of their own.
Result<Tensor> Gather(const StridedView& view);

}  // namespace sluice

#endif  // SLUICE_IO_CHECKPOINTS_STRIDED_VIEW_H_
