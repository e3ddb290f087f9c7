// Tensors of which each worker has a part, cut along the last dimension
// (VariableOptions::part_of): rank r of n has elements LeavesOf(size, r, n) of
// it. All parts are as wide as the widest; what a narrower one ends with is
// zero.
#ifndef SLUICE_MODELS_NN_PARTS_H_
#define SLUICE_MODELS_NN_PARTS_H_

#include <cstdint>

#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// How wide the parts are.
int64_t PartWidth(int64_t size, int64_t workers);
// `shape`, of a part, with the last dimension of all of it.
Shape WholeShape(Shape shape, int64_t size);

// That of a rank.
Tensor PartOf(const Tensor& whole, int64_t rank, int64_t workers);
// Writes that of a rank where it belongs.
void PutPart(const Tensor& part, int64_t rank, int64_t workers, Tensor* whole);

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_PARTS_H_
