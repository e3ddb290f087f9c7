#include "engine/allocate.h"

#include "engine/catch_errors.h"

namespace sluice {

Result<Tensor> AllocateTensor(DType dtype, const Shape& shape) {
  return CatchErrors([&]() -> Result<Tensor> { return Tensor(dtype, shape); });
}

Result<std::shared_ptr<void>> AllocateBytes(size_t bytes) {
  return CatchErrors(
      [&]() -> Result<std::shared_ptr<void>> { return AllocateBuffer(bytes); });
}

}  // namespace sluice
