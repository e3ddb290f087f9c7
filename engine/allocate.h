// Memory of the host's for functions that return Result: what Tensor's
// constructor and AllocateBuffer throw is the Status.
#ifndef SLUICE_ENGINE_ALLOCATE_H_
#define SLUICE_ENGINE_ALLOCATE_H_

#include <cstddef>
#include <memory>

#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/status.h"
#include "engine/tensor.h"

namespace sluice {

// Uninitialised. kResourceExhausted, which says how much was wanted;
// kInvalidArgument for a shape that no tensor has.
Result<Tensor> AllocateTensor(DType dtype, const Shape& shape);
// Aligned to kAlignment.
Result<std::shared_ptr<void>> AllocateBytes(size_t bytes);

}  // namespace sluice

#endif  // SLUICE_ENGINE_ALLOCATE_H_
