// Tensors of which each worker has a part, cut along the last dimension
// (VariableOptions::part_of): rank r of n has the elements LeavesOf(size, r, n)
// of that dimension. All parts are as wide as the widest; narrower ones are
// padded with zeros at the end.
#ifndef SLUICE_MODELS_NN_PARTS_H_
#define SLUICE_MODELS_NN_PARTS_H_

#include <cstdint>

#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// The width of the parts, in elements of the last dimension.
int64_t PartWidth(int64_t size, int64_t workers);
// The shape of the whole tensor, whose last dimension is `size`, from that of a
// part.
Shape WholeShape(Shape shape, int64_t size);

// The part of `rank`, cut from the whole tensor.
Tensor PartOf(const Tensor& whole, int64_t rank, int64_t workers);
// Writes the part of `rank` to its place in `whole`.
void PutPart(const Tensor& part, int64_t rank, int64_t workers, Tensor* whole);

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_PARTS_H_
